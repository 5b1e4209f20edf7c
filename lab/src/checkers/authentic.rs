//! What is delivered was published by whom it names, on that topic, with those bytes: no plaintext, no
//! forgery and nobody else's message is accepted.

use std::collections::BTreeMap;
use std::sync::Arc;

use sealcast_wire::Monotonic;

use super::{Body, Checker, Event, Roles, Verdict, member_of};

/// See the module.
#[derive(Default)]
pub struct Authentic {
    published: BTreeMap<Body, (usize, Arc<str>, usize)>,
    /// Whether messages without any origin are in order (`keys=plain`, brokers without a roster).
    anonymous: bool,
}

impl Authentic {
    /// A checker for schemes that do not name the sender.
    pub fn anonymous() -> Authentic {
        Authentic { anonymous: true, ..Authentic::default() }
    }
}

impl Checker<Roles, Event> for Authentic {
    fn name(&self) -> &'static str {
        "authentic"
    }

    fn event(&mut self, _at: Monotonic, node: usize, event: &Event, roles: &Roles) -> Verdict {
        match event {
            Event::Published { topic, body } => {
                if let Some(read) = Body::read(body) {
                    self.published.insert(read, (node, topic.clone(), body.len()));
                }
                Ok(())
            }
            Event::Delivered { topic, body, origin, .. } => {
                let read =
                    Body::read(body).ok_or_else(|| format!("node {node} accepted bytes that nobody published"))?;
                let (author, on, length) = self
                    .published
                    .get(&read)
                    .ok_or_else(|| format!("node {node} accepted {read:?}, never published"))?;
                if on != topic || *length != body.len() {
                    return Err(format!("node {node} accepted {read:?} changed, or on another topic"));
                }
                match member_of(origin) {
                    Some(member) if roles.node(&member.cert) == Some(*author) => Ok(()),
                    None if self.anonymous => Ok(()),
                    other => Err(format!("node {node} takes {other:?} for the author of {read:?}")),
                }
            }
            _ => Ok(()),
        }
    }
}
