//! A transport that says everything three times, for networks that lose much: best effort, and nothing else.
//!
//! What is sealed comes once all the same, since a replay is dropped; key schemes take the same message twice. And each
//! member says once what others sealed, as it came: it reaches also who did not hear its sender.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use sealcast_delivery::memory::BestEffort;
use sealcast_delivery::{Batch, Delivery, Input, Outgoing, Output, Properties, SendError, Token};
use sealcast_wire::{Dropped, Monotonic, Now, Protect, Source, To};

/// The machine: `mem:`'s frames, repeated.
pub struct Repeating {
    once: BestEffort,
    /// What is to be said again: when, how often, and what.
    again: VecDeque<(Monotonic, u32, Vec<u8>)>,
    due: VecDeque<Vec<u8>>,
    now: Monotonic,
}

impl Repeating {
    /// One that takes sealed data only, or unsealed data, too.
    pub fn new(plain: bool) -> Repeating {
        let once = if plain { BestEffort::plain() } else { BestEffort::new() };
        Repeating { once, again: VecDeque::new(), due: VecDeque::new(), now: Monotonic(0) }
    }

    fn say_again(&mut self, times: u32, datagram: Vec<u8>) {
        if times > 0 && self.again.len() < AGAIN_MAX {
            self.again.push_back((self.now + AFTER, times, datagram));
        }
    }
}

impl Delivery for Repeating {
    fn properties(&self) -> Properties {
        Properties { keeps_sealed: Some(0), ..Properties::BEST_EFFORT }
    }

    fn send(
        &mut self,
        now: Now,
        protect: Option<&Arc<dyn Protect>>,
        message: Outgoing<'_>,
    ) -> Result<Token, SendError> {
        self.now = now.monotonic;
        self.once.send(now, protect, message)
    }

    fn handle(&mut self, now: Now, input: Input<'_>) {
        self.now = now.monotonic;
        if let Input::Frame { sealed: Some(sealed), .. } = input {
            self.say_again(1, sealed.to_vec());
        }
        self.once.handle(now, input);
    }

    fn open_at(
        &mut self,
        index: u64,
        source: Source,
        flags: u8,
        frame: &mut [u8],
        protect: &dyn Protect,
    ) -> Result<Output, Dropped> {
        self.once.open_at(index, source, flags, frame, protect)
    }

    fn timeout(&self) -> Option<Monotonic> {
        // All wait for the same time.
        self.again.front().map(|(at, ..)| *at)
    }

    fn handle_timeout(&mut self, now: Now, _protect: Option<&Arc<dyn Protect>>) {
        self.now = now.monotonic;
        while let Some((_, times, datagram)) = self.again.pop_front_if(|(at, ..)| *at <= now.monotonic) {
            self.say_again(times - 1, datagram.clone());
            self.due.push_back(datagram);
        }
    }

    fn poll(&mut self, batch: &mut Batch) -> Option<Output> {
        if let Some(datagram) = self.due.pop_front() {
            batch.push(&datagram);
            return Some(Output::Transmit(To::Group));
        }
        let output = self.once.poll(batch);
        if let Some(Output::Transmit(_)) = output {
            let said: Vec<Vec<u8>> = batch.iter().map(<[u8]>::to_vec).collect();
            said.into_iter().for_each(|datagram| self.say_again(TIMES - 1, datagram));
        }
        output
    }
}

const TIMES: u32 = 3;
const AFTER: Duration = Duration::from_millis(10);
const AGAIN_MAX: usize = 4096;
