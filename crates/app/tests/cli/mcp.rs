//! `mitra mcp` and `/mcp`: asked by the protocol's own client, and by hand with what is wrong.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

use crate::harness::{MITRA, command, finish, good, python};
use crate::serve::{Answer, Server, recording};

const VERSION: &str = "2026-07-28";

/// A server on pipes.
struct Pipes {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Pipes {
    fn start(archive: &str) -> Pipes {
        let mut child = command(&["mcp", "--archive", archive])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("mitra can be started");
        let output = BufReader::new(child.stdout.take().unwrap());
        Pipes { input: child.stdin.take(), child, output }
    }

    fn say(&mut self, text: &[u8]) {
        let input = self.input.as_mut().unwrap();
        input.write_all(text).and_then(|()| input.write_all(b"\n")).unwrap();
    }

    fn hear(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }

    fn ask(&mut self, message: &Value) -> Value {
        self.say(message.to_string().as_bytes());
        self.hear()
    }

    fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let params = json!({ "name": tool, "arguments": arguments });
        let mut answer = self.ask(&request(json!(1), "tools/call", params));
        answer["result"].take()
    }

    fn end(mut self) {
        drop(self.input.take());
        assert!(self.child.wait().unwrap().success());
    }
}

fn request(id: Value, method: &str, mut params: Value) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": VERSION,
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

fn code(answer: &Value) -> i64 {
    answer["error"]["code"].as_i64().unwrap_or_else(|| panic!("{answer}"))
}

/// With the protocol's own client, in each of its modes and over both transports.
const CLIENT: &str = r"
import asyncio, json, sys, jsonschema
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

mitra, archive, url = sys.argv[1:]
stdio = lambda: stdio_client(StdioServerParameters(command=mitra, args=['mcp', '--archive', archive]))

async def main():
    said = []
    for where in (stdio, lambda: url):
        for mode in ('auto', 'legacy', '2026-07-28'):
            async with Client(where(), mode=mode) as client:
                tools = (await client.list_tools()).tools
                for tool in tools:
                    jsonschema.Draft202012Validator.check_schema(tool.input_schema)
                    assert tool.annotations.read_only_hint and len(tool.description) > 80, tool
                answers = {}
                for name, arguments in [
                    ('explain', {}), ('explain', {'incident': 1, 'detail': True}), ('incidents', {}), ('findings', {}),
                    ('processes_at', {'order': 'written', 'limit': 3}), ('changes', {}),
                    ('query', {'metric': 'disk.write_bytes', 'row': 'v*', 'points': 4}), ('query', {'metric': 'mem.*'}),
                ]:
                    answer = await client.call_tool(name, arguments)
                    assert not answer.is_error, answer
                    assert isinstance(answer.structured_content, dict) and answer.content[0].text, answer
                    key = name + ' ' + ' '.join(arguments)
                    answers[key] = [answer.structured_content, answer.content[0].text]
                wrong = await client.call_tool('query', {'metric': 7})
                assert wrong.is_error and 'metric: want a text' in wrong.content[0].text, wrong
                try:
                    await client.call_tool('delete', {})
                    raise SystemExit('there is no such tool')
                except Exception as error:
                    assert 'no tool is called delete' in str(error), error
                said.append({'version': client.protocol_version, 'tools': [t.name for t in tools], 'answers': answers})
    print(json.dumps(said))

asyncio.run(main())
";

#[test]
fn the_protocols_own_client_gets_what_the_commands_say() {
    let Some(python) = python("mcp.client.client, jsonschema") else {
        println!("skipped: no Python with mcp 2; run: tools/install-deps.sh test");
        return;
    };
    let (server, archive) = (Server::of_recording(), recording());
    let url = format!("http://{}/mcp", server.address);
    let said = finish(Command::new(python).args(["-c", CLIENT, MITRA, &archive, &url]));
    assert_eq!(said.code, 0, "{}", said.err);
    let said: Value = serde_json::from_str(&said.out).unwrap();
    let versions: Vec<_> =
        said.as_array().unwrap().iter().map(|one| one["version"].as_str().unwrap()).collect();
    assert_eq!(versions, [VERSION, "2025-11-25", VERSION, VERSION, "2025-11-25", VERSION]);
    let answers = &said[0]["answers"];
    for one in said.as_array().unwrap() {
        assert_eq!(
            one["tools"],
            json!(["explain", "incidents", "findings", "processes_at", "query", "changes"])
        );
        assert_eq!(one["answers"], *answers, "each way says the same");
    }
    let report: Value = serde_json::from_str(&good(&["explain", "--json", "--archive", &archive])).unwrap();
    let list = server.json("/api/v1/incidents");
    assert_eq!(answers["incidents "][0]["incidents"], list["incidents"]);
    assert_eq!(answers["explain incident detail"][0]["incidents"][0], report["incidents"][0]);
    let text = answers["explain "][1].as_str().unwrap();
    assert!(text.contains("ROOT CAUSE  one program fills a disk's queue"), "{text}");
    let written = &answers["processes_at order limit"][0];
    assert_eq!(
        (&written["processes"][0]["comm"], written["processes"].as_array().unwrap().len()),
        (&json!("fio"), 3)
    );
    assert!(written["left_out"].as_u64().unwrap() > 10, "{written}");
    let series = &answers["query metric row points"][0]["series"][0];
    assert_eq!(
        (&series["row"], series["values"]["max"].as_array().unwrap().len()),
        (&json!("vda"), 4),
        "{series}"
    );
    let names = answers["query metric"][0]["names"].as_array().unwrap();
    assert!(
        names.iter().any(|metric| metric["name"] == "mem.available" && metric["unit"] == "bytes"),
        "{names:?}"
    );
}

#[test]
fn what_is_wrong_is_said_and_the_next_message_is_answered() {
    let mut pipes = Pipes::start(&recording());
    for (text, wanted) in [
        ("{".to_owned(), -32700),
        ("[1, 2]".to_owned(), -32600),
        ("\"hello\"".to_owned(), -32600),
        ("\u{0}\u{1}".to_owned(), -32700),
        ("[".repeat(500_000), -32700),
        ("x".repeat(40 << 20), -32700),
        (r#"{"jsonrpc":"2.0","id":{},"method":"tools/list"}"#.to_owned(), -32600),
        (r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":7}}"#.to_owned(), -32602),
        (request(json!(1), "resources/list", json!({})).to_string(), -32601),
        (request(json!(1), "tools/call", json!({ "name": ["explain"] })).to_string(), -32602),
        (request(json!(1), "tools/call", json!({ "name": "rm" })).to_string(), -32602),
        (request(json!(1), "tools/call", json!({ "name": "explain", "arguments": [] })).to_string(), -32602),
        (request(json!(1), "tools/call", json!({ "name": "search_state" })).to_string(), -32602),
    ] {
        pipes.say(text.as_bytes());
        let answer = pipes.hear();
        assert_eq!(code(&answer), wanted, "{}", &text[..text.len().min(100)]);
    }
    pipes.say(b"\xff\xfe");
    assert_eq!(code(&pipes.hear()), -32700);
    // A notification has no answer; the next line is that of the request after it.
    pipes.say(br#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":99}}"#);
    let answer = pipes.ask(&request(json!("a"), "server/discover", json!({})));
    assert_eq!((&answer["id"], &answer["result"]["supportedVersions"][0]), (&json!("a"), &json!(VERSION)));
    assert!(answer["result"]["instructions"].as_str().unwrap().contains("never an instruction"));
    for (tool, arguments, wanted) in [
        ("explain", json!({ "since": "yesterday" }), "since: want RFC 3339"),
        ("explain", json!({ "since": "2000", "until": "1000" }), "the range ends before it begins"),
        ("explain", json!({ "since": "500", "until": "1000" }), "nothing was recorded"),
        ("explain", json!({ "incident": 99 }), "there is no incident 99"),
        ("explain", json!({ "incident": 0 }), "incident: want a whole number"),
        ("explain", json!({ "service": "no-such" }), "no service"),
        ("explain", json!({ "range": "1h" }), "no argument is called range"),
        ("query", json!({}), "metric: it is missing"),
        ("query", json!({ "metric": "no.metric" }), "no metric"),
        ("query", json!({ "metric": "mem.free", "points": 1e300 }), "points: want a whole number"),
        ("processes_at", json!({ "order": "name" }), "order: want one of cpu"),
    ] {
        let result = pipes.call(tool, arguments);
        let said = result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{result}"));
        assert!(result["isError"] == true && said.contains(wanted), "{tool}: {said}");
    }
    // It has given up what it does not need, in all of its threads.
    let status = std::fs::read_to_string(format!("/proc/{}/status", pipes.child.id())).unwrap();
    assert!(
        status.contains("CapEff:\t0000000000000000\n") && status.contains("NoNewPrivs:\t1\n"),
        "{status}"
    );
    pipes.end();
}

#[test]
fn an_answer_is_not_larger_than_an_assistant_can_read() {
    let mut pipes = Pipes::start(&recording());
    let result = pipes.call("query", json!({ "metric": "task.cpu_time", "points": 200, "series": 20 }));
    let structured = result["structuredContent"].to_string();
    assert!(structured.len() < 66 << 10, "{} bytes", structured.len());
    assert!(result["structuredContent"]["left_out"].as_u64().unwrap() > 0, "{structured}");
    // Twenty series of fewer columns, and all of the range.
    let series = result["structuredContent"]["series"].as_array().unwrap();
    let columns = series[0]["values"]["max"].as_array().unwrap().len() as f64;
    let seconds = result["structuredContent"]["seconds_of_a_column"].as_f64().unwrap() * columns;
    assert!(series.len() == 20 && (23.0..25.0).contains(&seconds), "{seconds}");
    pipes.end();
}

#[test]
fn files_of_the_machine_are_found_without_their_secrets() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    std::fs::create_dir(path("etc")).unwrap();
    std::fs::write(path("etc/app.conf"), "listen = 8080\nDB_PASSWORD=correct-horse-7\n").unwrap();
    std::fs::write(path("etc/other.conf"), "nothing here\n").unwrap();
    let archive = path("archive");
    std::fs::create_dir(&archive).unwrap();
    for file in std::fs::read_dir(recording()).unwrap().map(|file| file.unwrap()) {
        if file.file_type().unwrap().is_file() {
            std::fs::copy(file.path(), archive.join(file.file_name())).unwrap();
        }
    }
    let config = format!("[index]\nfiles = [{:?}]\ncollectors = []\n", path("etc"));
    std::fs::write(path("index.toml"), config).unwrap();
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let (config, index) = (text(&path("index.toml")), text(&archive.join("index")));
    good(&["index", "--config", &config, "--store", &index]);
    let mut pipes = Pipes::start(archive.to_str().unwrap());
    let tools = pipes.ask(&request(json!(1), "tools/list", json!({})));
    let last = tools["result"]["tools"].as_array().unwrap().last().unwrap().clone();
    assert_eq!(last["name"], "search_state");
    let result = pipes.call("search_state", json!({ "query": "listen", "content": true }));
    let found = result["structuredContent"]["documents"].as_array().unwrap_or_else(|| panic!("{result}"));
    assert!(
        found.len() == 1 && found[0]["filename"].as_str().unwrap().ends_with("/etc/app.conf"),
        "{result}"
    );
    let content = found[0]["content"].as_str().unwrap();
    assert!(content.contains("listen = 8080") && !result.to_string().contains("correct-horse"), "{result}");
    let wrong = pipes.call("search_state", json!({ "query": "filename:(" }));
    assert_eq!(wrong["isError"], true, "{wrong}");
    pipes.end();
}

fn post(server: &Server, headers: &str, body: &str) -> Answer {
    let length = body.len();
    server.raw(&format!(
        "POST /mcp HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n{body}",
        server.address
    ))
}

#[test]
fn over_http_only_its_own_page_and_programs_are_answered() {
    let server = Server::of_recording();
    let json = "Content-Type: application/json\r\n";
    let of = |method: &str| format!("{json}MCP-Protocol-Version: {VERSION}\r\nMcp-Method: {method}\r\n");
    let list = request(json!(1), "tools/list", json!({})).to_string();
    assert_eq!(post(&server, &of("tools/list"), &list).json()["result"]["resultType"], "complete");
    let unknown = request(json!(1), "nothing", json!({})).to_string();
    let answer = post(&server, &of("nothing"), &unknown);
    assert_eq!((answer.status, code(&answer.json())), (404, -32601));
    let answer = post(&server, &of("tools/call"), &list);
    assert_eq!((answer.status, code(&answer.json())), (400, -32020));
    assert_eq!(post(&server, json, &list).status, 400);
    let answer = post(&server, json, "{");
    assert_eq!((answer.status, code(&answer.json())), (400, -32700));
    assert_eq!(post(&server, json, r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).status, 202);
    let get = server.get("/mcp");
    assert_eq!((get.status, get.header("allow")), (405, Some("POST")));
    assert_eq!(
        server
            .raw(&format!("DELETE /mcp HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", server.address))
            .status,
        405
    );
    // A form of another site can be sent without asking first.
    assert_eq!(post(&server, "Content-Type: text/plain\r\n", &list).status, 415);
    let foreign = format!("{}Origin: http://evil.example\r\n", of("tools/list"));
    assert_eq!(post(&server, &foreign, &list).code(), "bad_origin");
    assert_eq!(post(&server, json, &"x".repeat(300 << 10)).status, 413);
    let chunked = format!(
        "POST /mcp HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n{json}Transfer-Encoding: chunked\r\n\r\n",
        server.address
    );
    let endless = format!("{chunked}{}", format!("10000\r\n{}\r\n", "x".repeat(0x10000)).repeat(8));
    assert_eq!(server.raw(&endless).status, 413);
}
