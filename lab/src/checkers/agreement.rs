//! Same epoch, same members, same keys: at whoever installs it.
//!
//! Keys are compared without seeing one: what the first member of an epoch seals, every other one must
//! open, and the other way round.

use std::collections::BTreeMap;
use std::sync::Arc;

use sealcast::group::Epoch;
use sealcast_wire::frame::{HEADER_LEN, TAG_LEN};
use sealcast_wire::{Domain, Dropped, EpochId, Monotonic, Protect, View, limits};

use super::{Checker, Event, Roles, Verdict};

/// See the module.
#[derive(Default)]
pub struct Agreement {
    epochs: BTreeMap<EpochId, First>,
}

struct First {
    node: usize,
    view: Arc<View>,
    keys: Option<Arc<Epoch>>,
}

impl Checker<Roles, Event> for Agreement {
    fn name(&self) -> &'static str {
        "agreement"
    }

    fn event(&mut self, _at: Monotonic, node: usize, event: &Event, _roles: &Roles) -> Verdict {
        let Event::Installed(view, keys) = event else { return Ok(()) };
        let Some(first) = self.epochs.get(&view.epoch) else {
            self.epochs.insert(view.epoch, First { node, view: view.clone(), keys: keys.clone() });
            return Ok(());
        };
        let (epoch, other) = (view.epoch, first.node);
        if first.view.members != view.members {
            return Err(format!("epoch {epoch:?}: nodes {other} and {node} name different members"));
        }
        if first.view.me == view.me && other != node {
            return Err(format!("epoch {epoch:?}: nodes {other} and {node} sit in one slot"));
        }
        let (Some(ours), Some(theirs)) = (protect(&first.keys), protect(keys)) else { return Ok(()) };
        for (by, sealer, at, opener) in [(other, ours, node, theirs), (node, theirs, other, ours)] {
            if other == node {
                continue;
            }
            for domain in (0..=limits::COMPARTMENTS_MAX as u16).map(Domain) {
                same_key(sealer, opener, domain).map_err(|why| {
                    format!("epoch {epoch:?}: node {at} cannot open what node {by} seals under {domain:?}: {why}")
                })?;
            }
        }
        Ok(())
    }
}

fn protect(keys: &Option<Arc<Epoch>>) -> Option<&dyn Protect> {
    keys.as_ref().and_then(|e| e.protect.as_deref())
}

/// Seals a probe with one capability and opens it with the other.
fn same_key(sealer: &dyn Protect, opener: &dyn Protect, domain: Domain) -> Result<(), Dropped> {
    let mut probe = vec![0; HEADER_LEN];
    probe.extend_from_slice(PROBE);
    probe.resize(probe.len() + TAG_LEN, 0);
    if sealer.seal(domain, 0, &mut probe).is_err() {
        return Ok(()); // no sending key of this compartment
    }
    match opener.open(&mut probe) {
        Ok((_, _, plaintext)) if plaintext == PROBE => Ok(()),
        Ok(_) => Err(Dropped::Auth),
        // Not a reader of this compartment.
        Err(Dropped::NoKey) if domain != Domain::GROUP => Ok(()),
        Err(why) => Err(why),
    }
}

const PROBE: &[u8] = b"probe of the checkers";
