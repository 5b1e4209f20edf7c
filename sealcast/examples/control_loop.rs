//! A control loop of 1 kHz publishes from its own thread: `try_publish` never waits, and allocates nothing once it runs.
//!
//! ```console
//! $ cargo run --release --example control_loop -- 'udpm://239.255.76.67:7667?ttl=1' arm3
//! ```

use std::error::Error;
use std::thread::sleep;
use std::time::{Duration, Instant};

use sealcast::TryPublishError;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let url = args.next().unwrap_or_else(|| "mem:arm?keys=plain".to_owned());
    let mut opening = sealcast::open(&url);
    if let Some(name) = args.next() {
        opening = opening.identity(name.as_str());
    }
    let arm = opening.wait()?;
    let (mut taken, mut skipped) = (0, 0);
    let begun = Instant::now();
    for tick in 0..1000_u32 {
        let mut state = [0; 12];
        state[..4].copy_from_slice(&tick.to_be_bytes());
        match arm.try_publish("arm/state", &state) {
            Ok(()) => taken += 1,
            // No key yet, or the queue is full: the next state replaces this one anyway.
            Err(TryPublishError::NotReady | TryPublishError::Full) => skipped += 1,
            // It will not do later either: no right, left the group.
            Err(TryPublishError::Refused(why)) => return Err(why.into()),
        }
        let next = Duration::from_millis(u64::from(tick) + 1);
        sleep(next.saturating_sub(begun.elapsed()));
    }
    println!("{taken} states published, {skipped} skipped");
    arm.flush().wait()?;
    arm.close();
    Ok(())
}
