//! Groups whose members are sessions of this process: what a change of key drops, and what idle members cost.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use sealcast::config::Home;
use sealcast::session::Identity;
use sealcast::{Session, ViewEvent};
use sealcast_crypto::identity::Principal;
use sealcast_keys::Command;
use sealcast_wire::Dropped;

use super::AREA;
use crate::Failure;
use crate::figures::{Bench, Goal, Holds, Row, median};
use crate::peers::centre::Registry;
use crate::peers::identities::{GROUP, Identities};
use crate::peers::{Cpu, Flow, Pace};

pub(in crate::figures) const CHURN: &[&str] = &["ord-churn-no-key"];

/// Members who lack the key of what they get, while the key changes as often as the group manages.
pub(in crate::figures) fn churn(bench: &Bench) -> Result<Vec<Row>, Failure> {
    let lasts = Duration::from_secs(bench.pick(5, 30));
    let registry = Registry::new()?;
    let principals: Vec<Arc<Principal>> = registry.register(CHURNED)?.into_iter().map(Arc::new).collect();
    let centre = registry.run(None, "127.0.0.1:0")?;
    let options = format!("keys=center&kdc={}", centre.address);
    let group = Group::open(bench, &options, CHURNED, |i| Identity::Principal(principals[i].clone()), None)?;
    let leader = group.leader().ok_or("no session is the first member")?;
    let publisher = (leader + 1) % CHURNED;
    let mut views = group.sessions[publisher].views();
    let others = group.sessions.iter().enumerate().filter(|(i, _)| *i != publisher).map(|(_, it)| it);
    let others =
        others.map(|it| it.subscribe("load").capacity(UNLIMITED).wait()).collect::<sealcast::Result<Vec<_>>>()?;
    let drops = |why| group.sessions.iter().map(|it| it.stats().drops.of(why)).sum::<u64>();
    let before = [Dropped::NoKey, Dropped::OldKey].map(drops);
    let ended = AtomicBool::new(false);
    let (sent, epochs) = std::thread::scope(|scope| -> Result<(u64, usize), Failure> {
        let rotating = scope.spawn(|| {
            let pace = Pace { rate: CHANGES, window: lasts };
            // What cannot begin while the last change is under way is asked for again at the next tick.
            let _ = pace.run(|_| {
                let _ = group.sessions[leader].ask(Command::Rotate);
                Ok::<(), Failure>(())
            });
            ended.store(true, Ordering::Relaxed);
        });
        let watching = scope.spawn(|| {
            let mut epochs = BTreeSet::new();
            while !ended.load(Ordering::Relaxed) {
                if let Some(ViewEvent::Changed { view, .. }) = views.next_timeout(Duration::from_millis(20)) {
                    epochs.insert(view.epoch);
                }
            }
            epochs.len().saturating_sub(1)
        });
        let pace = Pace { rate: MESSAGES, window: lasts };
        let (sent, _) = pace.run(|_| group.sessions[publisher].publish("load", [0; 100]).wait().map(drop))?;
        rotating.join().map_err(|_| "who asks for keys panicked")?;
        Ok((sent, watching.join().map_err(|_| "who counts keys panicked")?))
    })?;
    std::thread::sleep(UNDER_WAY);
    let [no_key, old_key] = [Dropped::NoKey, Dropped::OldKey].map(drops);
    let [no_key, old_key] = [no_key - before[0], old_key - before[1]].map(|it| it as f64);
    let got: usize = others.iter().map(sealcast::Subscription::len).sum();
    let lost = (sent * others.len() as u64).saturating_sub(got as u64);
    let changes = epochs as f64 / lasts.as_secs_f64();
    let what = format!("datagrams dropped for want of a key at {CHANGES} changes/s, keys=center");
    let row = Row::new(AREA, "ord-churn-no-key", what, "datagrams", Goal::AtMost(0.0));
    let row = row.part("changes/s reached", changes).part("messages sent", sent as f64);
    let row = row.part("dropped as old key", old_key).part("messages lost, by receiver", lost as f64);
    let how = format!(
        "{CHURNED} real members in one process, loopback, {MESSAGES} best-effort messages/s for {} s, the leader is asked for \
         a new key {CHANGES} times a second; fewer changes than nine tenths of that do not hold",
        lasts.as_secs()
    );
    let mut row = row.measured(no_key, how);
    if changes < 0.9 * CHANGES {
        row.holds = Holds::No;
    }
    Ok(vec![row])
}

pub(in crate::figures) const IDLE: &[&str] = &["ord-idle-cpu"];

/// Processor time of members who have nothing to say.
pub(in crate::figures) fn idle(bench: &Bench) -> Result<Vec<Row>, Failure> {
    let lasts = Duration::from_secs(bench.pick(5, 20));
    let (members, turns) = (64, bench.pick(1, 3));
    let what = format!("processor time of {members} idle members, order=total / order=best-effort");
    let row = Row::new(AREA, "ord-idle-cpu", what, "ratio", Goal::AtMost(2.0));
    let registry = Registry::in_memory()?;
    let principals: Vec<Arc<Principal>> = registry.register(members)?.into_iter().map(Arc::new).collect();
    let centre = registry.run(None, "127.0.0.1:0")?;
    let mut shares = [vec![], vec![]];
    for _ in 0..turns {
        for (order, into) in ["order=best-effort", "order=total"].iter().zip(&mut shares) {
            bench.bar.tick();
            // Sixty and more who agree on keys on two cores do not come together; what idles is the same with a centre's keys.
            let options = format!("keys=center&kdc={}&{order}", centre.address);
            let registered = |i: usize| Identity::Principal(principals[i].clone());
            let _group = match Group::grown(bench, &options, members, registered) {
                Ok(group) => group,
                // The goal stays in sight where no group forms.
                Err(why) => return Ok(vec![row.absent(Holds::No, why.to_string())]),
            };
            std::thread::sleep(SETTLED);
            let before = Cpu::now()?;
            std::thread::sleep(lasts);
            let used = Cpu::now()?.since(before);
            into.push((used.user + used.system).as_secs_f64() / lasts.as_secs_f64() * 100.0);
        }
    }
    let [best_effort, total] = shares.map(|it| median(&it));
    let row = row.part("order=total, % of a core", total).part("order=best-effort, % of a core", best_effort);
    let how =
        format!("keys=center, all members in one process, loopback, {} s, medians of {turns} in turn", lasts.as_secs());
    Ok(vec![row.measured(total / best_effort, how)])
}

pub(in crate::figures) const SUSPICIONS: &[&str] = &["ord-suspicions"];

/// Who is taken for silent while all four publish as much as the channel takes.
pub(in crate::figures) fn suspicions(bench: &Bench) -> Result<Vec<Row>, Failure> {
    let lasts = Duration::from_secs(bench.pick(30, 600));
    let identities = Identities::new(CHURNED)?;
    let home = Home::at(identities.home());
    let options = "keys=contributory&order=total";
    let group = Group::open(bench, options, CHURNED, |i| Identity::Named(identities.name(i)), Some(&home))?;
    std::thread::sleep(SETTLED);
    let mut views: Vec<_> = group.sessions.iter().map(Session::views).collect();
    // Who orders is said first.
    std::thread::sleep(UNDER_WAY);
    for views in &mut views {
        while views.next_timeout(Duration::ZERO).is_some() {}
    }
    let mut messages =
        group.sessions.iter().map(|it| it.subscribe("load").wait()).collect::<sealcast::Result<Vec<_>>>()?;
    let ended = AtomicBool::new(false);
    let published = std::thread::scope(|scope| -> Result<u64, Failure> {
        for messages in &mut messages {
            scope.spawn(|| {
                while !ended.load(Ordering::Relaxed) {
                    // What a reader's queue loses is no matter here.
                    let _ = messages.next_timeout(Duration::from_millis(50));
                }
            });
        }
        let publish = |session: &Session| -> Result<u64, Failure> {
            let (end, mut count) = (Instant::now() + lasts, 0);
            while Instant::now() < end {
                drop(session.publish("load", [0; 1_000]).ordered().ticket()?);
                count += 1;
            }
            Ok(count)
        };
        let publishing: Vec<_> = group.sessions.iter().map(|it| scope.spawn(move || publish(it))).collect();
        let counts = publishing.into_iter().map(|it| it.join().map_err(|_| "a publisher panicked")?);
        let counts: Result<Vec<u64>, Failure> = counts.collect();
        ended.store(true, Ordering::Relaxed);
        Ok(counts?.iter().sum())
    })?;
    let (mut gone, mut unordered) = (BTreeSet::new(), 0);
    for views in &mut views {
        while let Some(event) = views.next_timeout(Duration::ZERO) {
            match event {
                ViewEvent::Changed { view, left, .. } if !left.is_empty() => _ = gone.insert(view.epoch),
                ViewEvent::Order { .. } => unordered += 1,
                _ => {}
            }
        }
    }
    let what = format!("false suspicions in {} s of full load, default detect, 4 members", lasts.as_secs());
    let row = Row::new(AREA, "ord-suspicions", what, "views", Goal::AtMost(0.0));
    let row = row.part("messages/s", published as f64 / lasts.as_secs_f64());
    let row = row.part("changes of who orders, at all members together", f64::from(unordered));
    let how = "views in which somebody left; all members in one process on loopback publish ordered, 1 KB, as fast as the \
               channel takes it";
    // A sequencer that is replaced was suspected, too.
    Ok(vec![row.measured(gone.len() as f64 + f64::from(unordered), how)])
}

pub(in crate::figures) const CPU: &[&str] = &["ord-cpu-64"];

/// What each further receiver costs the sender's own code.
pub(in crate::figures) fn cpu(bench: &Bench) -> Result<Vec<Row>, Failure> {
    let window = Duration::from_secs(bench.pick(3, 10));
    let mut found = Vec::new();
    for members in [2, 64] {
        bench.bar.tick();
        let registry = Registry::in_memory()?;
        registry.keep(members)?;
        let centre = registry.run(None, "127.0.0.1:0")?;
        let at = bench.field.address();
        let url = format!(
            "udpm://{at}?ttl=0&group={GROUP}&recv_buf_size={RECEIVE_BUFFER}&keys=center&kdc={}",
            centre.address
        );
        let mut flow = Flow::of(registry.home(), &url, "fifo", members)?;
        flow.point(1_000, CPU_RATE, window)?;
        let point = flow.point(1_000, CPU_RATE, window)?;
        found.push(point);
    }
    let row = Row::new(
        AREA,
        "ord-cpu-64",
        "sender's user time a message, fifo, 1 KB, 64 members / 2",
        "ratio",
        Goal::AtMost(1.1),
    );
    let [two, many] = &found[..] else { return Err("not both were measured".into()) };
    let row = row.part("user ns, 2", two.user_nanos).part("user ns, 64", many.user_nanos);
    let row = row.part("kernel ns, 2", two.system_nanos).part("kernel ns, 64", many.system_nanos);
    let how = format!("keys=center, {CPU_RATE} messages/s for {} s, one process each, loopback", window.as_secs());
    Ok(vec![row.measured(many.user_nanos / two.user_nanos, how)])
}

/// Sessions of one group.
pub(super) struct Group {
    pub(super) url: String,
    pub(super) sessions: Vec<Session>,
}

impl Group {
    /// So many, all started at once, once they share a key.
    pub(super) fn open(
        bench: &Bench,
        options: &str,
        members: usize,
        identity: impl Fn(usize) -> Identity,
        home: Option<&Home>,
    ) -> Result<Group, Failure> {
        let at = bench.field.address();
        let url = format!("udpm://{at}?ttl=0&group={GROUP}&recv_buf_size={RECEIVE_BUFFER}&{options}");
        let openings = (0..members).map(|i| {
            let opening = sealcast::open(&url).identity(identity(i));
            if let Some(home) = home { opening.home(home.clone()) } else { opening }
        });
        let openings: Vec<sealcast::Opening> = openings.collect();
        let sessions = std::thread::scope(|scope| {
            let opening: Vec<_> = openings.into_iter().map(|it| scope.spawn(move || it.wait())).collect();
            let opened = opening.into_iter().map(|it| it.join().expect("opening a session does not panic"));
            opened.collect::<sealcast::Result<Vec<Session>>>()
        })?;
        let group = Group { url, sessions };
        group.together(FORMATION_MAX).map_err(|why| format!("{options}: {why}"))?;
        Ok(group)
    }

    /// So many, eight of whom start at once: the next when these share a key.
    fn grown(
        bench: &Bench,
        options: &str,
        members: usize,
        identity: impl Fn(usize) -> Identity,
    ) -> Result<Group, Failure> {
        let mut group = Group::open(bench, options, members.min(AT_ONCE), &identity, None)?;
        while group.sessions.len() < members {
            let first = group.sessions.len();
            for i in first..members.min(first + AT_ONCE) {
                group.sessions.push(sealcast::open(&group.url).identity(identity(i)).wait()?);
            }
            group.together(FORMATION_MAX).map_err(|why| format!("{options}: {why}"))?;
        }
        Ok(group)
    }

    /// Waits until all sessions, and nobody else, are in one view.
    pub(super) fn together(&self, within: Duration) -> Result<(), Failure> {
        let (until, members) = (Instant::now() + within, self.sessions.len());
        loop {
            let views: Vec<_> = self.sessions.iter().filter_map(Session::view).collect();
            let one = |it: &Arc<sealcast::View>| it.members.len() == members && it.epoch == views[0].epoch;
            if views.len() == members && views.iter().all(one) {
                return Ok(());
            }
            if Instant::now() > until {
                let sizes: BTreeSet<usize> = views.iter().map(|it| it.members.len()).collect();
                let (within, some) = (within.as_secs(), views.len());
                return Err(format!(
                    "no group of {members} formed within {within} s: {some} have views, of {sizes:?} members"
                )
                .into());
            }
            std::thread::sleep(POLLED);
        }
    }

    /// Which session is the first member: with keys from a centre, that one leads.
    pub(super) fn leader(&self) -> Option<usize> {
        self.sessions.iter().position(|it| {
            let view = it.view();
            view.is_some_and(|view| view.members.iter().next().is_some_and(|first| *first.name == *it.info().me))
        })
    }
}

const MESSAGES: f64 = 1_000.0;
/// What 64 processes on few cores still keep up with.
const CPU_RATE: f64 = 200.0;
/// Asked for each second.
const CHANGES: f64 = 100.0;
const CHURNED: usize = 4;
/// What was sent has arrived by then, if it ever does.
const UNDER_WAY: Duration = Duration::from_millis(500);
const UNLIMITED: usize = 1 << 20;
/// As the rows of the LAN have it.
const RECEIVE_BUFFER: usize = 4 << 20;
/// What follows a group's formation is over by then.
const SETTLED: Duration = Duration::from_secs(5);
const FORMATION_MAX: Duration = Duration::from_secs(30);
/// Who starts together where a large group grows.
const AT_ONCE: usize = 8;
const POLLED: Duration = Duration::from_micros(200);
