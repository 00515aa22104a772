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
    let watch = (Arc::clone(&node), principal.clone());
    let shut_out = async move {
        while may_read(&watch.0, &watch.1) {
            tokio::time::sleep(LOOKS).await;
        }
    };
    let events = past.chain(new).take_while(move |_| std::future::ready(may_read(&node, &principal)));
    let events = events.take_until(shut_out).map(Ok::<_, Infallible>);
    Sse::new(events).keep_alive(KeepAlive::default()).into_response()
}

/// Whether somebody who came in is still let in: the key has neither ended nor been revoked, and its tenant is active.
fn may_read(node: &Node, principal: &Principal) -> bool {
    let is_active = principal.tenant.as_ref().is_none_or(|tenant| node.is_active(tenant));
    let (Some(keys), Some(id)) = (node.access.keys(), &principal.key) else { return is_active };
    // Times of keys have one length and zone, so that their texts are in the order of the times.
    let has_ended = |expires: &String| *expires <= crate::now();
    let key = keys.find(id, None).filter(|key| key.revoked.is_none());
    is_active && key.is_some_and(|key| !key.expires.as_ref().is_some_and(has_ended))
}
