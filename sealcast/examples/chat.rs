//! What is typed goes to everybody in the group; who comes and goes is told.
//!
//! ```console
//! $ cargo run --example chat                                                # alone, in memory, nothing sealed
//! $ cargo run --example chat -- 'udpm://239.255.76.67:7667?ttl=1' alice     # sealed, after `sealcast init` or `join`
//! ```
//! It ends with its input: Ctrl-D.

use std::error::Error;
use std::io::{BufRead, stdin};
use std::thread;

use sealcast::{Origin, ViewEvent};

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let url = args.next().unwrap_or_else(|| "mem:room?keys=plain".to_owned());
    let mut opening = sealcast::open(&url);
    if let Some(name) = args.next() {
        opening = opening.identity(name.as_str());
    }
    let session = opening.wait()?;
    session.ready().wait()?;

    let mut lines = session.subscribe("chat").wait()?;
    let reader = thread::spawn(move || {
        // Closing the session ends it, after what is in the queue.
        while let Ok(message) = lines.wait() {
            let text = String::from_utf8_lossy(message.payload()).into_owned();
            match message.origin() {
                Origin::Signed(member) => println!("{}: {text}", member.name),
                Origin::Claimed(member) => println!("{} (not signed): {text}", member.name),
                _ => println!("somebody: {text}"),
            }
        }
    });
    let mut views = session.views();
    for line in stdin().lock().lines() {
        session.publish("chat", line?).wait()?;
        while let Some(event) = views.try_next() {
            match event {
                ViewEvent::Changed { joined, left, .. } => {
                    joined.iter().for_each(|it| println!("* {} is here", it.name));
                    left.iter().for_each(|it| println!("* {} is gone", it.name));
                }
                why => println!("* {why:?}"),
            }
        }
    }
    session.close();
    reader.join().map_err(|_| "the reader panicked".into())
}
