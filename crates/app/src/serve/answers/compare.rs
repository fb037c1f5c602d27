//! What differs between two ranges, as `mitra compare` says it.

use mitra_diagnose::compare::compare;
use mitra_model::Span;
use mitra_model::compare::Compared;
use mitra_model::time::SECOND;

use crate::recording::compared_side;
use crate::render::style::{Style, WIDTH_PIPED};
use crate::serve::api::Server;
use crate::serve::counter::Client;
use crate::serve::pool::Cancel;
use crate::serve::query::Query;
use crate::serve::response::Failure;

/// All values of both sides are in memory at once: of 1,000 tasks up to a quarter of a megabyte for each second.
const SIDE_MAX_NS: i64 = 600 * SECOND;

pub async fn answer(server: &Server, query: &Query, client: Client) -> Result<Compared, Failure> {
    let view = server.archive.fresh().await;
    view.check()?;
    let moment = |name: &str| {
        let missing =
            || Failure::bad("bad_parameter", format!("want {name}: RFC 3339, or seconds since 1970"));
        query.time(name)?.ok_or_else(missing)
    };
    let span = |side: &str| {
        let span =
            Span { since: moment(&format!("{side}_since"))?, until: moment(&format!("{side}_until"))? };
        if span.since >= span.until {
            return Err(Failure::bad("bad_range", format!("{side}: the range ends before it begins")));
        }
        let none =
            || Failure::not_found("not_recorded", format!("{side}: nothing was recorded in that time"));
        let recorded = span.intersect(view.span).ok_or_else(none)?;
        if recorded.until - recorded.since > SIDE_MAX_NS {
            let minutes = SIDE_MAX_NS / (60 * SECOND);
            return Err(Failure::bad("range_too_long", format!("{side}: want at most {minutes} minutes")));
        }
        Ok(span)
    };
    let (a, b) = (span("a")?, span("b")?);
    let ticket = server.pool.ticket(client)?;
    let turn = server.pool.turn().await?;
    let work = move |_: &Cancel| {
        let _turn = turn;
        let style = Style::plain(WIDTH_PIPED);
        Ok(compare(
            vec![compared_side(&view.reader, a, &style)?, compared_side(&view.reader, b, &style)?],
            false,
        ))
    };
    server.pool.run(ticket, work).await
}
