//! What the archive holds, as `mitra status --json` says it.

use serde_json::Value;

use crate::recording::status;
use crate::redact;
use crate::serve::api::Server;
use crate::serve::counter::Client;
use crate::serve::pool::Cancel;
use crate::serve::response::Failure;

pub async fn answer(server: &Server, client: Client) -> Result<Value, Failure> {
    let view = server.archive.fresh().await;
    view.check()?;
    let ticket = server.pool.ticket(client)?;
    let work = move |_: &Cancel| {
        let status = view.reader.status().map_err(anyhow::Error::from)?;
        let lately = status::lately(&view.reader, &status)?;
        let outputs = status::outputs(&view.reader, &status);
        let mut document = status::document(&view.reader, &status, &lately, &outputs);
        // What stores answer is quoted.
        if let Some(outputs) = document.get_mut("outputs") {
            redact::json(outputs);
        }
        Ok(document)
    };
    server.pool.run(ticket, work).await
}
