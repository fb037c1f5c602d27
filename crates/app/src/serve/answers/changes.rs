//! What was changed in a range: settings and limits by the recording, files and packages by the index beside it.

use serde_json::{Value, json};

use crate::diagnosis;
use crate::redact;
use crate::render::style::rfc3339;
use crate::serve::api::{ROWS_MAX_NS, Server};
use crate::serve::counter::Client;
use crate::serve::pool::Cancel;
use crate::serve::query::Query;
use crate::serve::response::Failure;

pub async fn answer(server: &Server, query: &Query, client: Client) -> Result<Value, Failure> {
    let view = server.archive.fresh().await;
    let span = query.recorded(&view, ROWS_MAX_NS)?;
    let ticket = server.pool.ticket(client)?;
    let work = move |_: &Cancel| {
        let (changes, index_error) = diagnosis::changes(&view.reader, span)?;
        let mut told = json!({
            "since": rfc3339(span.since),
            "until": rfc3339(span.until),
            "changes": changes,
            "index_error": index_error,
        });
        redact::json(&mut told);
        Ok(told)
    };
    server.pool.run(ticket, work).await
}
