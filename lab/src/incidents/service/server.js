// An HTTP server on one thread: PORT MILLISECONDS. A report computes that long and blocks all other
// requests.
const http = require('http');

const [port, milliseconds] = process.argv.slice(2).map(Number);
const rows = JSON.stringify(Array.from({ length: 400 }, (_, id) => ({ id, name: 'row ' + id, price: id * 1.25 })));

function report() {
  const until = Date.now() + milliseconds;
  let sum = 0;
  while (Date.now() < until) {
    for (const row of JSON.parse(rows)) sum += row.price;
  }
  return JSON.stringify({ sum });
}

http.createServer((request, response) => {
  const body = request.url === '/report' ? report() : JSON.stringify({ url: request.url });
  response.setHeader('Content-Length', Buffer.byteLength(body));
  response.end(body);
}).listen(port, '127.0.0.1');
