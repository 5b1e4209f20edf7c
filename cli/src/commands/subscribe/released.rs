//! `sealcast sub` through brokers: what they release, in their one order; what others advertise; what stands there.

use std::slice;
use std::time::Instant;

use sealcast::brokers::{Advertisement, Advertisements, Brokers, Item};
use sealcast::code::Code;
use sealcast_broker::operation::{Client, Header, Interest};
use sealcast_client::ConfirmedSubscription;
use serde_json::json;

use super::watch::Watch;
use super::{Shown, Sub};
use crate::cluster::{Cluster, interest};
use crate::commands::read::payloads;
use crate::commands::{Env, brokers};
use crate::format::{Payload, Received, Sender, base64, safe};
use crate::hint::Failure;
use crate::text::{row, table};

impl Sub {
    /// What is wanted of brokers: that one of the patterns fits. `None` if it is what others advertise, alone.
    pub(super) fn interest(&self) -> Result<Option<Interest>, Failure> {
        if self.regex {
            let failure = Failure::new(Code::BadPair, "brokers match patterns, not regular expressions");
            return Err(failure.hint("sealcast sub 'market/+/eurusd' 'news/#'"));
        }
        if self.patterns.is_empty() {
            return Ok(None);
        }
        let parts = self.patterns.iter().map(|text| interest(text)).collect::<Result<Vec<_>, _>>()?;
        let whole = Interest::any(parts);
        if !whole.is_well_formed() {
            let failure = Failure::new(Code::TooLarge, "these are more patterns than one subscription takes");
            return Err(failure.hint("several 'sealcast sub', each with some of them"));
        }
        Ok(Some(whole))
    }

    /// What brokers release.
    pub(super) fn released(
        &self,
        env: &Env<'_>,
        cluster: &Cluster,
        client: Brokers,
        interest: Option<Interest>,
    ) -> Result<(), Failure> {
        cluster.registered(env, &client)?;
        let at = &cluster.file.genesis.name;
        let mut subscription = match &interest {
            Some(interest) => {
                let subscription = client.subscribe(interest.clone()).wait()?;
                env.output.detail(format!("subscription {} at {at}", subscription.id()));
                Some(subscription)
            }
            None => {
                client.want_advertisements(true).wait()?;
                env.output.detail(format!("advertisements of {at}"));
                None
            }
        };
        let wanted = |header: &Header| interest.as_ref().is_some_and(|it| it.matches(slice::from_ref(header)));
        let (mut shown, mut watch) = (Shown { since: Instant::now(), count: 0 }, Watch::new(&client));
        let ended = self.show_all(&mut shown, |shown, timeout| {
            watch.look(env, cluster, &client)?;
            if self.advertisements && show_advertisements(env, &client, shown)? {
                return Ok(());
            }
            match &mut subscription {
                Some(subscription) => {
                    let item = subscription.next_timeout(timeout)?;
                    item.map_or(Ok(()), |item| self.show_item(env, shown, item, &wanted))
                }
                None => {
                    std::thread::sleep(timeout);
                    Ok(())
                }
            }
        });
        brokers::keep(env, &cluster.file.cluster(), &client.evidence())?;
        drop(subscription);
        client.close();
        ended
    }

    fn show_item(
        &self,
        env: &Env<'_>,
        shown: &mut Shown,
        item: Item,
        wanted: &dyn Fn(&Header) -> bool,
    ) -> Result<(), Failure> {
        match item {
            Item::Empty { count, .. } => env.output.detail(format!("{count} publications that you may not read")),
            Item::Lost { count, .. } => {
                env.output.warn(format!("{count} publications are no longer kept by the brokers"));
            }
            Item::Publication { entry, associated, content, .. } => {
                let client = key_shown(env, &entry.client);
                // Of its topics the one that was asked for; whoever wanted two at once sees the first.
                let asked_for = entry.places.iter().find(|(header, _)| wanted(header)).or(entry.places.first());
                let (topic, sequence) = asked_for.map_or(("", 0), |(header, ps)| (&*header.topic, *ps));
                for payload in payloads(&content) {
                    shown.count += 1;
                    self.show_received(
                        env,
                        &Received {
                            index: shown.count,
                            topic,
                            sender: Sender::Signed(&client),
                            epoch: 0,
                            sequence,
                            delay_micros: None,
                            associated: &associated,
                            places: &entry.places,
                            payload,
                        },
                    )?;
                }
            }
        }
        Ok(())
    }
}

/// What others advertised meanwhile; whether they did.
fn show_advertisements(env: &Env<'_>, client: &Brokers, shown: &mut Shown) -> Result<bool, Failure> {
    let Advertisements { came, missed } = client.advertisements();
    if missed > 0 {
        env.output.warn(format!("{missed} advertisements came faster than they could be printed"));
    }
    shown.count += came.len() as u64;
    came.iter().try_for_each(|it| show_advertisement(env, it))?;
    Ok(!came.is_empty())
}

/// `advertised market/#  from 5f0c81aa…`, and the text; as an object it is the one with `advertisement`.
fn show_advertisement(env: &Env<'_>, it: &Advertisement) -> Result<(), Failure> {
    let (scope, from) = (it.scope.to_string(), key_shown(env, &it.client));
    if env.output.is_json() {
        let mut object = json!({ "scope": scope, "from": from, "sn": it.sn });
        match std::str::from_utf8(&it.text) {
            Ok(text) => object["advertisement"] = json!(text),
            Err(_) => object["advertisement_base64"] = json!(base64(&it.text)),
        }
        return env.output.object(&object);
    }
    env.output.line(env.output.bold(format!("advertised {}  from {from}", safe(&scope))))?;
    if env.output.to_terminal() {
        return env.output.line(Payload::Here(&it.text).set_off());
    }
    env.output.bytes(&[&it.text[..], b"\n"].concat())
}

/// A client's key; for people its beginning.
fn key_shown(env: &Env<'_>, client: &Client) -> String {
    let key = hex::encode(client.0);
    if env.output.is_json() { key } else { format!("{}…", &key[..8]) }
}

/// What the chosen identity has subscribed to here, in whichever process it was.
pub(super) fn list(env: &Env<'_>, cluster: &Cluster) -> Result<(), Failure> {
    let (clients, in_use) = cluster.open_subscribers(env)?;
    let mut rows = vec![row(["ID", "NEXT", "WAITING", "INTEREST"])];
    for client in clients {
        let (confirmed, of) = (client.subscriptions().wait(), hex::encode(client.client().0));
        client.close();
        for it in confirmed? {
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
        env.output.say(format!("not shown: what {in_use} running 'sealcast sub' of yours read"));
    }
    Ok(())
}

/// Ends all subscriptions of the chosen identity to just this.
pub(super) fn end(env: &Env<'_>, cluster: &Cluster, interest: &Interest) -> Result<(), Failure> {
    let (clients, in_use) = cluster.open_subscribers(env)?;
    let mut ended = 0;
    for client in clients {
        let these = |it: &ConfirmedSubscription| it.interest == *interest;
        let ids: Vec<u64> =
            client.subscriptions().wait()?.into_iter().filter(these).map(|it| it.subscription).collect();
        for id in ids {
            client.end_subscription(id).wait()?;
            ended += 1;
            env.output.object(&json!({ "id": id, "interest": interest.to_string(), "ended": true }))?;
            env.output.line(format!("ended subscription {id}   {}", safe(&interest.to_string())))?;
        }
        client.close();
    }
    if ended > 0 {
        return Ok(());
    }
    let what = format!("no subscription of yours to '{interest}' stands at {}", cluster.file.genesis.name);
    Err(Failure::new(Code::BadValue, what).hint(match in_use {
        0 => "sealcast sub --list shows those that do",
        _ => "end the 'sealcast sub' that runs, then try again; sealcast sub --list shows the others",
    }))
}
