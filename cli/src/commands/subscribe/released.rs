//! `sealcast sub` through brokers: what they release, in their one order.

use std::time::Instant;

use sealcast::brokers::{Item, Subscription};
use sealcast::code::Code;
use sealcast_broker::operation::Interest;

use super::{STEP, Sub};
use crate::cluster::{As, Cluster, hex, interest};
use crate::commands::{Env, brokers};
use crate::format::{Received, Sender};
use crate::hint::Failure;
use crate::interrupt;

impl Sub {
    pub(super) fn through_brokers(&self, env: &Env<'_>, cluster: &Cluster) -> Result<(), Failure> {
        if self.regex {
            let failure = Failure::new(Code::BadPair, "brokers match patterns, not regular expressions");
            return Err(failure.hint("sealcast sub 'market/+/eurusd' 'news/#'"));
        }
        let interest = self.interest()?;
        let client = cluster.open(env, &As::Subscriber)?;
        client.registered()?;
        let mut subscription = client.subscribe(interest)?;
        env.output.detail(format!("subscription {} at {}", subscription.id(), cluster.file.genesis.name));
        let ended = self.print_released(env, &mut subscription);
        brokers::keep(env, &cluster.file.cluster(), &client.evidence())?;
        drop(subscription);
        client.close();
        ended
    }

    /// What is wanted: that one of the patterns fits.
    fn interest(&self) -> Result<Interest, Failure> {
        let parts = self.patterns.iter().map(|text| interest(text)).collect::<Result<Vec<_>, _>>()?;
        let whole = Interest::any(parts);
        if !whole.is_well_formed() {
            let failure = Failure::new(Code::TooLarge, "these are more patterns than one subscription takes");
            return Err(failure.hint("several «sealcast sub», each with some of them"));
        }
        Ok(whole)
    }

    fn print_released(&self, env: &Env<'_>, subscription: &mut Subscription) -> Result<(), Failure> {
        let (start, mut index) = (Instant::now(), 0);
        loop {
            if self.count.is_some_and(|n| index >= n) || interrupt::asked() {
                return Ok(());
            }
            let left = self.wait.map_or(STEP, |w| w.saturating_sub(start.elapsed()));
            if left.is_zero() {
                return self.out_of_time(index);
            }
            match subscription.next_timeout(left.min(STEP))? {
                None => {}
                Some(Item::Empty { count, .. }) => {
                    env.output.detail(format!("{count} publications that you may not read"))
                }
                Some(Item::Lost { count, .. }) => {
                    env.output.warn(format!("{count} publications are no longer kept by the brokers"))
                }
                Some(Item::Publication { entry, bodies, .. }) => {
                    let client = hex(&entry.client.0);
                    let client = if env.output.is_json() { client } else { format!("{}…", &client[..8]) };
                    let topic = &entry.places[0].0.topic;
                    for payload in &bodies {
                        index += 1;
                        let (sender, epoch) = (Sender::Signed(&client), 0);
                        let delay_micros = None;
                        let number = entry.places[0].1;
                        self.show_received(
                            env,
                            &Received { index, topic, sender, epoch, sequence: number, delay_micros, payload },
                        )?;
                    }
                }
            }
        }
    }
}
