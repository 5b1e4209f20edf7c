//! A client that does not know the brokers' key yet: it fetches the key, and is a [`Threshold`] from then on.
//!
//! ```text
//! Fetching ──Up──▶ Fetch(Key) ──Missing──▶ again, after a while
//!                      └──Bytes──▶ Running: the first epoch, then all that a Threshold does
//! ```

use std::collections::VecDeque;
use std::time::Duration;

use sealcast_crypto::group::{PrimeGroup, Ristretto255};
use sealcast_crypto::secret::Secret;
use sealcast_wire::{Dropped, Fetch, FetchId, Fetched, Incarnation, Monotonic, Now};

use super::{Config, PROPERTIES, RequiredVersions, Threshold, pin};
use crate::{CommandError, HandleError, Input, Keys, Output, Properties, Seal, SealError, Sealed};

/// What a client knows before it has the key.
pub struct Setup {
    /// Its name, for its own view.
    pub name: String,
    /// Its id at the brokers.
    pub client: [u8; 32],
    /// The cluster's id.
    pub cluster: [u8; 32],
    /// The brokers' keys, by number.
    pub brokers: Vec<[u8; 32]>,
    /// This run.
    pub incarnation: Incarnation,
    /// Drawn once for each process and never used again.
    pub seed: Secret<32>,
}

/// See the module.
pub struct Client<G: PrimeGroup = Ristretto255>(State<G>);

enum State<G: PrimeGroup> {
    Fetching(Box<Fetching>),
    Running(Box<Threshold<G>>),
}

struct Fetching {
    setup: Setup,
    versions: RequiredVersions,
    /// When to ask for the key next.
    ask_at: Option<Monotonic>,
    asked: u64,
    outputs: VecDeque<Output>,
}

impl<G: PrimeGroup> Client<G> {
    /// A client that asks for the key once its transport is up.
    pub fn new(setup: Setup) -> Client<G> {
        let versions = RequiredVersions { epoch: 0, policy: 0 };
        let fetching = Fetching { setup, versions, ask_at: None, asked: 0, outputs: VecDeque::new() };
        Client(State::Fetching(Box::new(fetching)))
    }
}

impl Fetching {
    fn ask(&mut self) {
        self.asked += 1;
        self.ask_at = None;
        self.outputs.push_back(Output::Fetch { id: FetchId(self.asked), what: Fetch::Key });
    }

    /// Takes in what happened; the machine under the key, once that came.
    fn handle<G: PrimeGroup>(&mut self, now: Now, input: Input<'_>) -> Result<Option<Threshold<G>>, HandleError> {
        match input {
            Input::Up => self.ask(),
            Input::InForce(versions) => self.versions = versions.into(),
            Input::Fetched(FetchId(id), result) if id == self.asked => {
                if let Fetched::Bytes(key) = &result
                    && let Some(config) = self.config(key)
                {
                    let Setup { name, incarnation, seed, .. } = &self.setup;
                    return Ok(Some(Threshold::new(name, *incarnation, config, self.versions, seed)));
                }
                self.ask_at = Some(now.monotonic + REQUEST_AGAIN_AFTER);
                if matches!(result, Fetched::Bytes(_)) {
                    return Err(Dropped::Malformed.into());
                }
            }
            Input::Message { .. } => return Err(Dropped::Foreign.into()),
            Input::Command(_) => return Err(CommandError::NotReady.into()),
            // Nothing was sealed, sent or prepared, and another question was answered before.
            Input::Delivered(_)
            | Input::Fetched(..)
            | Input::PackagesKept(_)
            | Input::Outcome(..)
            | Input::Suspected(_)
            | Input::Slow(_)
            | Input::Passed(_)
            | Input::Ends
            | Input::Flushed(..)
            | Input::Describe => {}
        }
        Ok(None)
    }

    fn config<G: PrimeGroup>(&self, key: &[u8]) -> Option<Config<G>> {
        let Setup { client, cluster, brokers, .. } = &self.setup;
        Config::new(*client, *cluster, brokers, key, &pin(cluster, key)).ok()
    }
}

impl<G: PrimeGroup> Keys for Client<G> {
    fn properties(&self) -> Properties {
        PROPERTIES
    }

    fn handle(&mut self, now: Now, input: Input<'_>) -> Result<(), HandleError> {
        match &mut self.0 {
            State::Fetching(it) => {
                if let Some(machine) = it.handle(now, input)? {
                    self.0 = State::Running(Box::new(machine));
                }
                Ok(())
            }
            State::Running(machine) => machine.handle(now, input),
        }
    }

    fn seal(&mut self, message: &Seal<'_>) -> Result<Sealed, SealError> {
        match &mut self.0 {
            State::Fetching(_) => Err(SealError::NotReady),
            State::Running(machine) => machine.seal(message),
        }
    }

    /// What comes before the key waits for it.
    fn has_capacity(&self, bytes: usize) -> bool {
        match &self.0 {
            State::Fetching(_) => false,
            State::Running(machine) => machine.has_capacity(bytes),
        }
    }

    fn timeout(&self) -> Option<Monotonic> {
        match &self.0 {
            State::Fetching(it) => it.ask_at,
            State::Running(machine) => machine.timeout(),
        }
    }

    fn handle_timeout(&mut self, now: Now) {
        match &mut self.0 {
            State::Fetching(it) if it.ask_at.is_some_and(|at| at <= now.monotonic) => it.ask(),
            State::Fetching(_) => {}
            State::Running(machine) => machine.handle_timeout(now),
        }
    }

    fn poll(&mut self) -> Option<Output> {
        match &mut self.0 {
            State::Fetching(it) => it.outputs.pop_front(),
            State::Running(machine) => machine.poll(),
        }
    }
}

/// How often brokers that had no key are asked whether they have one now.
const REQUEST_AGAIN_AFTER: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use rand_chacha::ChaCha20Rng;
    use rand_core::SeedableRng as _;
    use sealcast_crypto::group::Parameters;
    use sealcast_crypto::signature::OriginKey;
    use sealcast_crypto::tdh2::deal;
    use sealcast_wire::{Envelope, EpochId};

    use super::*;

    fn now(millis: u64) -> Now {
        Now { monotonic: Monotonic(millis * 1000), utc: None }
    }

    fn asked(client: &mut Client) -> Option<FetchId> {
        match client.poll() {
            None => None,
            Some(Output::Fetch { id, what: Fetch::Key }) => Some(id),
            Some(_) => panic!("it does nothing else"),
        }
    }

    #[test]
    fn a_client_asks_for_the_key_until_it_is_there_and_begins_with_the_versions_in_force() {
        let mut rng = ChaCha20Rng::seed_from_u64(1);
        let (key, _) = deal::<Ristretto255>(Parameters::new(b"test", 2, 4), &mut rng).expect("2 of 4 is a sharing");
        let brokers = (1..=4).map(|n| OriginKey::from_seed(&Secret::from_bytes([n; 32])).public_bytes()).collect();
        let (incarnation, seed) = (Incarnation::default(), Secret::from_bytes([9; 32]));
        let setup = Setup { name: "reader".to_owned(), client: [1; 32], cluster: [7; 32], brokers, incarnation, seed };
        let mut client = Client::<Ristretto255>::new(setup);
        assert_eq!((asked(&mut client), client.timeout()), (None, None), "nobody can be asked yet");

        client.handle(now(0), Input::Up).expect("taken");
        let first = asked(&mut client).expect("it asks");
        client.handle(now(0), Input::Fetched(first, Fetched::Missing)).expect("taken");
        assert!(asked(&mut client).is_none() && !client.has_capacity(1), "what comes sealed waits");
        let again = client.timeout().expect("it asks again");
        client.handle_timeout(Now { monotonic: again, utc: None });
        let second = asked(&mut client).expect("it asks again");
        assert_ne!(first, second);

        client.handle(now(300), Input::InForce(EpochId { counter: 3, hash: 5 })).expect("taken");
        assert_eq!(client.handle(now(300), Input::Command(crate::Command::Leave)), Err(CommandError::NotReady.into()));
        let garbage = client.handle(now(300), Input::Fetched(second, Fetched::Bytes(vec![1; 70])));
        assert_eq!(garbage, Err(Dropped::Malformed.into()));
        client.handle_timeout(now(1000));
        let third = asked(&mut client).expect("and again");
        client.handle(now(1000), Input::Fetched(second, Fetched::Bytes(key.encode()))).expect("it is ignored");
        assert!(asked(&mut client).is_none(), "an old question is over");
        client.handle(now(1000), Input::Fetched(third, Fetched::Bytes(key.encode()))).expect("it is the key");
        let Some(Output::Epoch { view, .. }) = client.poll() else { panic!("no epoch") };
        assert_eq!((view.epoch, client.has_capacity(1)), (EpochId { counter: 3, hash: 5 }, true));
        let envelope = Envelope::of_topic("t");
        let sealed = client.seal(&Seal { id: 1_u128.to_be_bytes(), envelope: &envelope, bodies: &[b"x"] });
        assert_eq!(sealed.map(|it| it.epoch), Ok(EpochId { counter: 3, hash: 5 }));
    }
}
