//! `sealcast lab kills ordered`: crash after crash under ordered load.
//!
//! Five members publish in one order. Again and again one or two of them are killed, the sequencer among them, the second
//! one perhaps while the others are about to go on without the first; they are started again and join. All the time it must
//! hold: what was acknowledged is delivered, each once, in one order, by all who were in the view from then on; what failed is
//! delivered to nobody.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use rand_chacha::ChaCha8Rng;
use rand_core::SeedableRng as _;
use serde_json::json;

use super::members::{MEMBERS, Members, Scheme};
use super::{Plan, below, below_ms, some};
use crate::Failure;
use crate::brokers::interrupted;
use crate::figures::progress;

/// Kill members of a group again and again under ordered load, and see that nothing is lost
#[derive(Args, Clone, Debug)]
pub(crate) struct Ordered {
    #[command(flatten)]
    plan: Plan,
    /// Who holds the keys
    #[arg(long, value_enum, default_value_t = Scheme::Center)]
    keys: Scheme,
    /// Ordered messages per second, of each member
    #[arg(long, default_value_t = 50.0)]
    rate: f64,
    /// After how long without a sign of it a member is suspected
    #[arg(long, default_value = "1s", value_name = "TIME")]
    detect: String,
}

/// What was seen.
#[derive(Debug, Default)]
struct Seen {
    kills: u32,
    killed: u32,
    /// How often the sequencer was among them.
    sequencers: u32,
    /// The longest time without a delivery.
    gap: Duration,
    /// The longest time from the last start until all were together.
    together: Duration,
}

impl Ordered {
    /// Runs it.
    ///
    /// # Errors
    /// What did not hold, and the seed.
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        let (begun, end) = (Instant::now(), interrupted()?);
        let mut members = Members::start(self.keys, self.rate, &self.detect, end.clone())?;
        let mut seen = Seen::default();
        self.kill(&mut members, &mut seen).map_err(|why| self.plan.ended(&end, seen.kills, &why))?;
        let ms = |it: Duration| it.as_secs_f64() * 1e3;
        let (seconds, counts) = (begun.elapsed().as_secs_f64(), &members.counts);
        let (acknowledged, delivered) = (members.ledger.acknowledged(), members.ledger.len());
        if self.plan.json {
            let object = json!({
                "kills": seen.kills, "killed": seen.killed, "sequencers": seen.sequencers, "seed": self.plan.seed,
                "seconds": seconds, "acknowledged": acknowledged, "delivered": delivered, "doubtful": counts.doubtful,
                "failed": counts.failed, "refused": counts.refused, "reasons": counts.reasons, "gaps": counts.gaps,
                "gap_ms": ms(seen.gap), "together_ms": ms(seen.together), "holds": true,
            });
            println!("{object}");
        } else {
            println!(
                "{} kills of {} members in all, {} times the sequencer among them, in {seconds:.0} s (seed {})",
                seen.kills, seen.killed, seen.sequencers, self.plan.seed
            );
            println!(
                "{acknowledged} messages acknowledged, {delivered} delivered, each once, in one order at {MEMBERS} members; \
                 {} in doubt, {} failed, {} refused",
                counts.doubtful, counts.failed, counts.refused
            );
            counts.reasons.iter().for_each(|(why, times)| println!("    {times} times: {why}"));
            println!(
                "longest time without a delivery {:.0} ms; all together within {:.0} ms of a start; {} gaps were told",
                ms(seen.gap),
                ms(seen.together),
                counts.gaps
            );
            println!("nothing acknowledged was lost");
        }
        Ok(ExitCode::SUCCESS)
    }

    fn kill(&self, members: &mut Members, seen: &mut Seen) -> Result<(), Failure> {
        let mut rng = ChaCha8Rng::seed_from_u64(self.plan.seed);
        let bar = progress(u64::from(self.plan.kills), self.plan.no_progress || self.plan.json);
        while seen.kills < self.plan.kills {
            let mut victims = some(&mut rng, MEMBERS, (MEMBERS - 1) / 2);
            let wants_sequencer = below(&mut rng, 3) == 0;
            members.pass(below_ms(&mut rng, UP_MS))?;
            if let Some(sequencer) = members.sequencer().filter(|it| wants_sequencer && !victims.contains(it)) {
                victims[0] = sequencer;
            }
            seen.sequencers += u32::from(members.sequencer().is_some_and(|it| victims.contains(&it)));
            members.longest_gap();
            for (number, victim) in victims.iter().enumerate() {
                if number > 0 {
                    // Perhaps while the others agree to go on without the first one.
                    members.pass(below_ms(&mut rng, BETWEEN_MS))?;
                }
                members.kill(*victim)?;
            }
            members.grow()?;
            members.pass(below_ms(&mut rng, DOWN_MS))?;
            for victim in &victims {
                members.restart(*victim)?;
            }
            seen.together = seen.together.max(members.together()?);
            seen.gap = seen.gap.max(members.longest_gap());
            seen.kills += 1;
            seen.killed += u32::try_from(victims.len()).expect("they are few");
            members.ledger.next_turn();
            members.ledger.check()?;
            bar.inc(1);
        }
        bar.finish_and_clear();
        members.halt()?;
        Ok(members.ledger.check_all()?)
    }
}

/// How long all are up between two kills, how long after the first one the second one is killed, and how long they are away
/// once the others go on, at most.
const UP_MS: u64 = 600;
const BETWEEN_MS: u64 = 1500;
const DOWN_MS: u64 = 1200;
