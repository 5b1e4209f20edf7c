//! Round trips: publish, an echo publishes back, until it is here again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use sealcast::code::Code;
use sealcast::{Session, Subscription};
use serde_json::json;

use super::{Protection, Stage, percentile, stop_if_asked};
use crate::commands::Env;
use crate::hint::Failure;
use crate::text::{parse_bytes, row, size, table, thousands};

/// See the module.
#[derive(Debug, Args)]
pub(super) struct Latency {
    /// Bytes of a message
    #[arg(long, default_value = "100B", value_name = "SIZE", value_parser = parse_bytes)]
    size: usize,
    /// Round trips of each kind
    #[arg(long, default_value_t = 1000, value_name = "N")]
    count: usize,
    /// What to measure
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["plain", "sealed"], value_name = "KINDS")]
    compare: Vec<Protection>,
    /// Further options of the URL, for example linger=1ms
    #[arg(long, value_name = "OPTIONS")]
    options: Option<String>,
}

/// One kind's figures, in microseconds.
struct Measured {
    p50: f64,
    p99: f64,
    max: f64,
    lost: usize,
}

impl Latency {
    pub(super) fn run(self, env: &Env<'_>) -> Result<(), Failure> {
        let header = format!(
            "round trip, {} each way, alone, {} times, linger 0",
            size(self.size),
            thousands(self.count as u64)
        );
        env.output.say(&header);
        let mut rows = vec![row(["", "p50 µs", "p99 µs", "max µs", "lost", "ratio"])];
        let mut first = None;
        for protection in &self.compare {
            let m = self.measure(env, *protection)?;
            let ratio = m.p50 / *first.get_or_insert(m.p50);
            env.output.object(&json!({
                "bench": "latency", "kind": protection.name(), "size": self.size, "count": self.count,
                "p50_us": m.p50, "p99_us": m.p99, "max_us": m.max, "lost": m.lost, "ratio": ratio,
            }))?;
            rows.push(vec![
                protection.name().to_owned(),
                format!("{:.1}", m.p50),
                format!("{:.1}", m.p99),
                format!("{:.0}", m.max),
                m.lost.to_string(),
                format!("{ratio:.2}"),
            ]);
        }
        env.output.line(table(&rows))
    }

    fn measure(&self, env: &Env<'_>, protection: Protection) -> Result<Measured, Failure> {
        let stage = Stage::new(protection, 2, self.options.as_ref())?;
        let mut sessions = stage.open_all(2)?;
        let (echo, here) = (sessions.remove(1), sessions.remove(0));
        let ended = Arc::new(AtomicBool::new(false));
        let questions = echo.subscribe("ping").wait()?;
        let echoing = std::thread::spawn({
            let (ended, echo) = (ended.clone(), echo.clone());
            move || answer(&echo, questions, &ended)
        });
        let measured = self.ask(env, protection, &here);
        ended.store(true, Ordering::Relaxed);
        let answered = echoing.join().unwrap_or_else(|_| Err(Failure::new(Code::System, "the echo panicked")));
        here.close();
        echo.close();
        answered.and(measured)
    }

    fn ask(&self, env: &Env<'_>, protection: Protection, here: &Session) -> Result<Measured, Failure> {
        let mut answers = here.subscribe("pong").wait()?;
        let body = vec![0x5A; self.size];
        let bar = env.output.progress((self.count + WARM_UP) as u64, protection.name());
        let (mut nanos, mut lost) = (Vec::with_capacity(self.count), 0);
        for i in 0..self.count + WARM_UP {
            stop_if_asked()?;
            let start = Instant::now();
            here.publish("ping", &body).wait()?;
            match answers.next_timeout(LOST_AFTER)? {
                Some(_) if i >= WARM_UP => nanos.push(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)),
                Some(_) => {}
                None => lost += 1,
            }
            bar.inc(1);
        }
        bar.finish_and_clear();
        nanos.sort_unstable();
        let max = percentile(&nanos, 1.0);
        Ok(Measured { p50: percentile(&nanos, 0.5), p99: percentile(&nanos, 0.99), max, lost })
    }
}

fn answer(session: &Session, mut questions: Subscription, ended: &AtomicBool) -> Result<(), Failure> {
    while !ended.load(Ordering::Relaxed) {
        if let Some(message) = questions.next_timeout(Duration::from_millis(50))? {
            session.publish("pong", message.payload()).wait()?;
        }
    }
    Ok(())
}

/// Round trips that are not counted: caches and the path's first packets.
const WARM_UP: usize = 100;
const LOST_AFTER: Duration = Duration::from_millis(500);
