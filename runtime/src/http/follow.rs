//! Followers of a function's log: lines as server-sent events, for as long as whoever asked may read them.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures::StreamExt;
use serde_json::json;
use tokio::sync::broadcast::Receiver;
use tokio_stream::wrappers::BroadcastStream;
use tokio_stream::wrappers::errors::BroadcastStreamRecvError;

use crate::access::Principal;
use crate::node::Node;
use crate::sandbox::logs::Line;

/// How often it is looked at who follows where no lines come. Before each line it is looked at, too.
const LOOKS: Duration = Duration::from_secs(2);

/// The last lines, and new ones as they come.
pub fn events(node: Arc<Node>, principal: Principal, recent: Vec<Line>, new: Receiver<Line>) -> Response {
    let new = BroadcastStream::new(new).filter_map(|line| {
        let event = match line {
            Ok(line) => Event::default().json_data(line).ok(),
            Err(BroadcastStreamRecvError::Lagged(missed)) => {
                Event::default().event("missed").json_data(json!({ "lines": missed })).ok()
            }
        };
        std::future::ready(event)
    });
    // A server that stops does not wait for its followers.
    let new = new.take_until(node.stop.ended.clone().cancelled_owned());
    let past = futures::stream::iter(recent)
        .filter_map(|line| std::future::ready(Event::default().json_data(line).ok()));
    let may_read = move || node.may_go_on(principal.key.as_deref()).is_ok();
    let watch = may_read.clone();
    let shut_out = async move {
        while watch() {
            tokio::time::sleep(LOOKS).await;
        }
    };
    let events = past.chain(new).take_while(move |_| std::future::ready(may_read()));
    let events = events.take_until(shut_out).map(Ok::<_, Infallible>);
    Sse::new(events).keep_alive(KeepAlive::default()).into_response()
}
