//! What the archive holds, as `mitra status --json` says it.

use serde_json::Value;

use crate::recording::status;
use crate::serve::api::Server;
use crate::serve::counter::Client;
use crate::serve::pool::Cancel;
use crate::serve::response::Failure;

pub async fn answer(server: &Server, client: Client) -> Result<Value, Failure> {
    let view = server.archive.fresh().await;
    let ticket = server.pool.ticket(client)?;
    let work = move |_: &Cancel| {
        let status = view.reader.status().map_err(anyhow::Error::from)?;
        let lately = status::lately(&view.reader, &status)?;
        Ok(status::document(&view.reader, &status, &lately))
    };
    server.pool.run(ticket, work).await
}
