//! `sealcast sub` through brokers: what they release, in their one order; what stands there.

use std::time::Instant;

use sealcast::brokers::{Item, Subscription};
use sealcast::code::Code;
use sealcast_broker::operation::Interest;
use sealcast_delivery::quorum::Stood;
use serde_json::json;

use super::{STEP, Sub};
use crate::cluster::{As, Cluster, hex, interest};
use crate::commands::{Env, brokers};
use crate::format::{Received, Sender, safe};
use crate::hint::Failure;
use crate::interrupt;
use crate::text::{row, table};

impl Sub {
    pub(super) fn through_brokers(&self, env: &Env<'_>, cluster: &Cluster) -> Result<(), Failure> {
        if self.regex {
            let failure = Failure::new(Code::BadPair, "brokers match patterns, not regular expressions");
            return Err(failure.hint("sealcast sub 'market/+/eurusd' 'news/#'"));
        }
        if self.list {
            return list(env, cluster);
        }
        let interest = self.interest()?;
        if self.end {
            return end(env, cluster, &interest);
        }
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

/// What the chosen identity has subscribed to here, in whichever process it was.
fn list(env: &Env<'_>, cluster: &Cluster) -> Result<(), Failure> {
    let (clients, in_use) = cluster.open_subscribers(env)?;
    let mut rows = vec![row(["ID", "NEXT", "WAITING", "INTEREST"])];
    for client in clients {
        let (stood, of) = (client.subscriptions(), hex(&client.client().0));
        client.close();
        for it in stood? {
            let (interest, waiting) = (it.interest.to_string(), it.places.saturating_sub(it.next));
            env.output.object(&json!({
                "id": it.subscription, "client": of, "interest": interest, "next": it.next, "waiting": waiting,
            }))?;
            let numbers = [it.subscription, it.next, waiting].map(|n| n.to_string());
            rows.push(numbers.into_iter().chain([safe(&interest)]).collect());
        }
    }
    if rows.len() > 1 {
        env.output.line(table(&rows))?;
    } else {
        env.output.say(format!("you have subscribed to nothing at {}", cluster.file.genesis.name));
    }
    if in_use > 0 {
        env.output.say(format!("not shown: what {in_use} running «sealcast sub» of yours read"));
    }
    Ok(())
}

/// Ends all subscriptions of the chosen identity to just this.
fn end(env: &Env<'_>, cluster: &Cluster, interest: &Interest) -> Result<(), Failure> {
    let (clients, in_use) = cluster.open_subscribers(env)?;
    let mut ended = 0;
    for client in clients {
        let these = |it: &Stood| it.interest == *interest;
        let ids: Vec<u64> = client.subscriptions()?.into_iter().filter(these).map(|it| it.subscription).collect();
        for id in ids {
            client.end_subscription(id)?;
            ended += 1;
            env.output.object(&json!({ "id": id, "interest": interest.to_string(), "ended": true }))?;
            env.output.line(format!("ended subscription {id}   {}", safe(&interest.to_string())))?;
        }
        client.close();
    }
    if ended > 0 {
        return Ok(());
    }
    let what = format!("no subscription of yours to «{interest}» stands at {}", cluster.file.genesis.name);
    Err(Failure::new(Code::BadValue, what).hint(match in_use {
        0 => "sealcast sub --list shows those that do",
        _ => "end the «sealcast sub» that runs, then try again; sealcast sub --list shows the others",
    }))
}
