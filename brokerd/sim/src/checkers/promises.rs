//! What else is promised: nothing acknowledged is lost (E12), receipts hold (E1), nobody honest is accused (E4).

use std::collections::BTreeMap;

use sealcast_broker::operation::Client;
use sealcast_broker::receipt::Fact;
use sealcast_broker::state::Code;
use sealcast_wire::Monotonic;

use super::{Book, Checker, Verdict};
use crate::event::Event;

pub(super) fn all() -> Vec<Box<dyn Checker<Book, Event>>> {
    vec![Box::<Acknowledged>::default(), Box::<Receipts>::default(), Box::new(Accusations)]
}

/// What a client was told has its place is there at every correct broker, whatever crashed since (E12), for as long as
/// that broker keeps publications.
#[derive(Default)]
struct Acknowledged {
    acknowledged: BTreeMap<u64, (Client, u64)>,
    floors: BTreeMap<usize, u64>,
}

impl Checker<Book, Event> for Acknowledged {
    fn name(&self) -> &'static str {
        "nothing acknowledged lost"
    }

    fn event(&mut self, _: Monotonic, _: usize, event: &Event, book: &Book) -> Verdict {
        match event {
            Event::Outcome { plan, number, sn, code: Code::Done, .. } => {
                let client = book.plans[*plan].0.client;
                match self.acknowledged.insert(*sn, (client, *number)) {
                    Some(before) if before != (client, *number) => Err(format!("two publications stand at sn {sn}")),
                    _ => Ok(()),
                }
            }
            Event::LowWaterMark { broker, sn } => {
                self.floors.insert(*broker, *sn);
                Ok(())
            }
            Event::Kept { broker, sn, .. }
                if self.floors.get(broker).is_some_and(|low_water_mark| sn < low_water_mark) =>
            {
                Ok(())
            }
            Event::Kept { broker, sn, who } if book.is_honest(*broker) => match self.acknowledged.get(sn) {
                Some(due) if Some(*due) != *who => {
                    Err(format!("broker {broker} has {who:?} at sn {sn}, and {due:?} was acknowledged"))
                }
                _ => Ok(()),
            },
            _ => Ok(()),
        }
    }
}

/// A receipt shows to anybody what its holder was told (E1).
#[derive(Default)]
struct Receipts(BTreeMap<usize, (u64, u64, u64)>);

impl Checker<Book, Event> for Receipts {
    fn name(&self) -> &'static str {
        "receipts"
    }

    fn event(&mut self, _: Monotonic, _: usize, event: &Event, book: &Book) -> Verdict {
        match event {
            Event::Outcome { plan, height, number, sn, code: Code::Done } => {
                self.0.insert(*plan, (*height, *number, *sn));
                Ok(())
            }
            Event::Receipt { plan, receipt } => {
                receipt.verify(&book.genesis).map_err(|why| format!("the receipt of plan {plan}: {why}"))?;
                let told = self.0.get(plan).copied();
                match &receipt.fact {
                    Fact::Published(it)
                        if it.client == book.plans[*plan].0.client
                            && told == Some((receipt.height, it.number, it.sn)) =>
                    {
                        Ok(())
                    }
                    other => Err(format!("the receipt of plan {plan}, told as {told:?}, shows {other:?}")),
                }
            }
            _ => Ok(()),
        }
    }
}

/// Whoever is said to have misbehaved did.
struct Accusations;

impl Checker<Book, Event> for Accusations {
    fn name(&self) -> &'static str {
        "accusations"
    }

    fn event(&mut self, _: Monotonic, _: usize, event: &Event, book: &Book) -> Verdict {
        match event {
            Event::Accused { client, broker, what } if book.is_honest(*broker) => {
                Err(format!("client {client} says of the honest broker {broker}: {what}"))
            }
            Event::Contradicted { by, broker, view } if book.is_honest(*by) && book.is_honest(*broker) => Err(format!(
                "broker {by} has a proof that the honest broker {broker} contradicted itself in view {view}"
            )),
            _ => Ok(()),
        }
    }
}
