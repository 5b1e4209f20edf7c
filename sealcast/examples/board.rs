//! A board that all members keep alike: each line that one of them says has its place, and who comes later gets the whole board.
//!
//! ```console
//! $ cargo run --example board -- 'udpm://239.255.76.67:7667?ttl=1&order=total' desk milk eggs   # after `sealcast init` or `join`
//! ```

use std::error::Error;
use std::time::Duration;

use sealcast::{Message, State, Step};

/// Its lines.
#[derive(Default)]
struct Board(Vec<String>);

impl State for Board {
    fn apply(&mut self, message: &Message) {
        self.0.push(String::from_utf8_lossy(message.payload()).into_owned());
    }

    fn snapshot(&self) -> Vec<u8> {
        self.0.join("\n").into_bytes()
    }

    fn restore(&mut self, snapshot: Option<&[u8]>) {
        self.0 = String::from_utf8_lossy(snapshot.unwrap_or_default()).lines().map(str::to_owned).collect();
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let url = args.next().unwrap_or_else(|| "udpm://239.255.76.67:7667?order=total".to_owned());
    let name = args.next().unwrap_or_else(|| "desk".to_owned());
    let session = sealcast::open(&url).identity(name.as_str()).wait()?;
    let mut board = session.replicate("board", Board::default())?;
    session.ready().wait()?; // a key is agreed

    let mut lines = args;
    while let Some(step) = board.next_timeout(Duration::from_secs(10))? {
        match step {
            Step::Began => println!("an empty board"),
            Step::Restored { .. } => println!("the others' board: {:?}", board.state().map(|it| &it.0)),
            Step::Applied(message) => println!("{}: {}", message.origin(), String::from_utf8_lossy(message.payload())),
            Step::Resumed => println!("nobody has more than this: {:?}", board.state().map(|it| &it.0)),
            _ => println!("apart from the others: their board comes"),
        }
        if let (Some(_), Some(line)) = (board.state(), lines.next()) {
            // It comes back in its place.
            let _ticket = session.publish("board", line).ordered().ticket()?;
        }
    }
    Ok(())
}
