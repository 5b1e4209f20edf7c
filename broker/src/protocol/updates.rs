//! What a block means to its clients, found in one pass over its outbox: what [`Contents::of`] and
//! [`Contents::digest`] say of one client, for all of them.

use std::collections::BTreeMap;

use super::{Contents, Update};
use crate::genesis::Cluster;
use crate::operation::Client;
use crate::state::{Notice, Outbox, Part, Run};

/// A block's updates.
pub struct Updates<'a> {
    outbox: &'a Outbox,
    clients: BTreeMap<Client, Mine>,
}

/// Places of what is one client's in the lists of an outbox.
#[derive(Default)]
struct Mine {
    results: Vec<usize>,
    notices: Vec<usize>,
    advertisements: bool,
}

impl<'a> Updates<'a> {
    /// Of this outbox.
    pub fn of(outbox: &'a Outbox) -> Updates<'a> {
        let mut clients: BTreeMap<Client, Mine> = BTreeMap::new();
        for (place, it) in outbox.results.iter().enumerate() {
            clients.entry(it.client).or_default().results.push(place);
        }
        for (place, it) in outbox.notices.iter().enumerate() {
            clients.entry(it.client).or_default().notices.push(place);
        }
        for client in &outbox.intents {
            clients.entry(*client).or_default().advertisements = true;
        }
        Updates { outbox, clients }
    }

    /// Whom the block concerns.
    pub fn clients(&self) -> impl Iterator<Item = &Client> {
        self.clients.keys()
    }

    /// The client's update without contents; `None` if the block does not concern it.
    pub fn digest(&self, cluster: &Cluster, client: &Client) -> Option<Update> {
        let (outbox, mine) = (self.outbox, self.clients.get(client)?);
        let publications = outbox.leaves(Part::Publication);
        let of = |part, places: &[usize]| -> Vec<[u8; 32]> {
            let leaves = outbox.leaves(part);
            places.iter().map(|place| leaves[*place]).collect()
        };
        let delivered: Vec<[u8; 32]> = self.delivered(mine).into_iter().map(|place| publications[place]).collect();
        let digest = super::update::digest(
            (cluster, client, outbox.height, outbox.at),
            [
                of(Part::Result, &mine.results).as_flattened(),
                of(Part::Notice, &mine.notices).as_flattened(),
                delivered.as_flattened(),
                if mine.advertisements { outbox.leaves(Part::Advertisement).as_flattened() } else { &[] },
            ],
        );
        Some(Update { height: outbox.height, digest, contents: None })
    }

    /// The client's contents without bodies; `None` if the block does not concern it.
    pub fn contents(&self, client: &Client) -> Option<Contents> {
        let (outbox, mine) = (self.outbox, self.clients.get(client)?);
        Some(Contents {
            at: outbox.at,
            results: mine.results.iter().map(|place| outbox.results[*place].clone()).collect(),
            notices: mine.notices.iter().map(|place| outbox.notices[*place].clone()).collect(),
            publications: self.delivered(mine).into_iter().map(|place| outbox.publications[place].clone()).collect(),
            advertisements: if mine.advertisements { outbox.advertisements.clone() } else { Vec::new() },
            bodies: Vec::new(),
        })
    }

    /// Places of the publications that the client's notices deliver, by sn, each once.
    fn delivered(&self, mine: &Mine) -> Vec<usize> {
        let notices = mine.notices.iter().map(|place| &self.outbox.notices[*place]);
        let sns = |it: &'a Notice| it.runs.iter().filter_map(Run::delivered);
        let publications = &self.outbox.publications;
        // A notice goes through the block's publications in their order.
        let mut places: Vec<usize> = Vec::new();
        for notice in notices {
            let mut from = 0;
            for sn in sns(notice) {
                while publications.get(from).is_some_and(|it| it.sn < sn) {
                    from += 1;
                }
                places.push(from);
            }
        }
        if mine.notices.len() > 1 {
            places.sort_unstable();
            places.dedup();
        }
        places
    }
}
