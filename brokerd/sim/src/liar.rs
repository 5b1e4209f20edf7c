//! Brokers that misbehave towards clients, each by a name. All of them vote and execute; what they say passes here.

use std::collections::BTreeMap;

use sealcast_broker::genesis::Cluster;
use sealcast_broker::operation::{Client, Policy};
use sealcast_broker::protocol::{Answer, Contents, Reply, SnapshotInfo, Update, Why};
use sealcast_broker::state::{Code, Reading, Run, SnapshotHead, SubjectStatus};
use sealcast_crypto::group::Ristretto255;
use sealcast_crypto::signature::OriginKey;
use sealcast_keys::threshold::sealed::{Attachment, SignedShare, What, statement};
use sealcast_wire::Utc;

/// How a broker misbehaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lie {
    /// Votes twice in a view, by a twin; tells clients other contents and bodies.
    Equivocator,
    /// Sends no shares.
    ShareWithholder,
    /// Sends shares of other ciphertexts, and signs false proofs.
    ShareForger,
    /// Says that operations came to nothing, and that state and time are others.
    LiarInResults,
    /// ⊥ for what may be read, something for ⊥, and its own shares for everybody.
    LiarInBottom,
    /// Takes batches of one client and orders none of them, and votes against blocks that do.
    Censor,
    /// Answers as it was at the beginning, and claims heights that are not.
    StaleState,
    /// Offers a broker that lost its folder states that never were, certificates of nothing and damaged rows.
    SnapshotForger,
}

impl Lie {
    /// All of them that lie to clients.
    pub const ALL: [Lie; 7] = [
        Lie::Equivocator,
        Lie::ShareWithholder,
        Lie::ShareForger,
        Lie::LiarInResults,
        Lie::LiarInBottom,
        Lie::Censor,
        Lie::StaleState,
    ];

    /// As it is called on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Lie::Equivocator => "equivocator",
            Lie::ShareWithholder => "share-withholder",
            Lie::ShareForger => "share-forger",
            Lie::LiarInResults => "liar-in-results",
            Lie::LiarInBottom => "liar-in-bottom",
            Lie::Censor => "censor",
            Lie::StaleState => "stale-state",
            Lie::SnapshotForger => "snapshot-forger",
        }
    }
}

/// One such broker's mouth.
pub struct Liar {
    /// How it lies.
    pub lie: Lie,
    key: OriginKey,
    cluster: Cluster,
    /// The first welcome of each client.
    welcomes: BTreeMap<Client, Reply>,
    /// Shares that it sent, by sn.
    shares: BTreeMap<u64, Attachment<Ristretto255>>,
    /// A proved share of another ciphertext.
    proved: Option<Attachment<Ristretto255>>,
    /// Who came.
    clients: Vec<Client>,
    /// In which of several ways it lies.
    manner: u64,
    /// The root of the state that it invented.
    root: Option<[u8; 32]>,
}

impl Liar {
    /// A broker with this key; `manner` says in which way it lies, where there are several.
    pub fn new(lie: Lie, key: OriginKey, cluster: Cluster, manner: u64) -> Liar {
        let (welcomes, shares, proved, clients) = (BTreeMap::new(), BTreeMap::new(), None, Vec::new());
        Liar { lie, key, cluster, welcomes, shares, proved, clients, manner, root: None }
    }

    /// What it says instead.
    pub fn says(&mut self, client: Client, reply: Reply) -> Vec<(Client, Reply)> {
        if !self.clients.contains(&client) {
            self.clients.push(client);
        }
        match self.lie {
            Lie::Censor => vec![(client, reply)],
            Lie::Equivocator => vec![(client, self.equivocate(&client, reply))],
            Lie::ShareWithholder => self.withhold(client, reply),
            Lie::ShareForger => vec![(client, self.forge(reply))],
            Lie::LiarInResults => vec![(client, self.lie_in_results(&client, reply))],
            Lie::LiarInBottom => self.lie_in_bottom(client, reply),
            Lie::StaleState => vec![(client, self.be_stale(&client, reply))],
            Lie::SnapshotForger => match reply {
                Reply::Answer { id, answer } => {
                    vec![(client, Reply::Answer { id, answer: self.forge_snapshot(answer) })]
                }
                reply => vec![(client, reply)],
            },
        }
    }

    fn withhold(&self, client: Client, reply: Reply) -> Vec<(Client, Reply)> {
        match reply {
            Reply::Attach { .. } | Reply::Answer { answer: Answer::Share(_), .. } => Vec::new(),
            reply => vec![(client, reply)],
        }
    }

    fn equivocate(&self, client: &Client, reply: Reply) -> Reply {
        let distort = |client: &Client, height: u64, mut contents: Contents| {
            contents.bodies.iter_mut().for_each(|(_, body)| body.reverse());
            if client.0[0].is_multiple_of(2) {
                contents.at.0 += 1;
            }
            let digest = contents.digest(&self.cluster, client, height);
            Update { height, digest, contents: Some(contents) }
        };
        match reply {
            Reply::Update(Update { height, contents: Some(contents), .. }) => {
                Reply::Update(distort(client, height, contents))
            }
            Reply::Answer { id, answer: Answer::Update(Update { height, contents: Some(contents), .. }) } => {
                Reply::Answer { id, answer: Answer::Update(distort(client, height, contents)) }
            }
            Reply::Answer { id, answer: Answer::Bodies(mut bodies) } => {
                bodies.iter_mut().for_each(|(_, body)| body.reverse());
                Reply::Answer { id, answer: Answer::Bodies(bodies) }
            }
            reply => reply,
        }
    }

    fn forge(&mut self, reply: Reply) -> Reply {
        match reply {
            Reply::Attach { sn, attachment } => Reply::Attach { sn, attachment: self.forged(sn, &attachment) },
            Reply::Answer { id, answer: Answer::Share(attachment) } => {
                Reply::Answer { id, answer: Answer::Share(self.forged(u64::MAX, &attachment)) }
            }
            reply => reply,
        }
    }

    /// The share of another ciphertext, as if it were of this one.
    fn forged(&mut self, sn: u64, bytes: &[u8]) -> Vec<u8> {
        let Ok(mut it) = Attachment::<Ristretto255>::from_bytes(bytes) else { return bytes.to_vec() };
        let other = |share: &Attachment<Ristretto255>| share.ciphertext != it.ciphertext;
        match &it.what {
            What::Share(_) => {
                let found = self.shares.values().find(|share| other(share)).map(|it| it.what.clone());
                self.shares.insert(sn, it.clone());
                match found {
                    Some(what) => it.what = what,
                    None => return vec![1; 40],
                }
            }
            What::Proved(_) => {
                let found = self.proved.clone().filter(other);
                self.proved = Some(it.clone());
                if let Some(Attachment { what: What::Proved(found), .. }) = found {
                    let bytes = found.proved.encode();
                    let statement = statement(&self.cluster.0, &found.sharing, &it.ciphertext, &bytes);
                    it.what = What::Proved(SignedShare { signature: self.key.sign(&statement), ..found });
                }
            }
            What::Denied => {}
        }
        it.to_bytes()
    }

    fn lie_in_results(&self, client: &Client, reply: Reply) -> Reply {
        let distort = |Update { height, mut digest, contents }: Update| {
            let contents = contents.map(|mut contents| {
                let outcomes = contents.results.iter_mut().flat_map(|results| &mut results.outcomes);
                outcomes.for_each(|outcome| outcome.code = Code::Denied);
                contents
            });
            match &contents {
                Some(contents) => digest = contents.digest(&self.cluster, client, height),
                None => digest[0] ^= 1,
            }
            Update { height, digest, contents }
        };
        match reply {
            Reply::Update(update) => Reply::Update(distort(update)),
            Reply::Welcome(mut it) => {
                (it.height, it.policy, it.next) = (u64::MAX / 2, 99, 999_999);
                // To some no block is old, to others all are (E6).
                let is_ahead = (u64::from(client.0[0]) + self.manner).is_multiple_of(2);
                it.at = Utc(if is_ahead { i64::MAX / 2 } else { i64::MIN / 2 });
                it.registered = !it.registered;
                Reply::Welcome(it)
            }
            Reply::Answer { id, answer } => {
                let answer = match answer {
                    Answer::Update(update) => Answer::Update(distort(update)),
                    Answer::Result { height, mut results } => {
                        results.outcomes.iter_mut().for_each(|it| it.code = Code::Denied);
                        Answer::Result { height, results }
                    }
                    Answer::Receipt(mut it) => {
                        it.state_root = [9; 32];
                        if let Some(statement) = it.statement(&self.cluster) {
                            it.signature = self.key.sign(&statement);
                        }
                        Answer::Receipt(it)
                    }
                    Answer::Value(_) => Answer::Value(Some((1, b"lie".to_vec()))),
                    Answer::Policy { number, .. } => Answer::Policy { number, policy: Policy::default() },
                    Answer::Subject(it) => Answer::Subject(SubjectStatus { revoked: !it.revoked, ..it }),
                    other => other,
                };
                Reply::Answer { id, answer }
            }
            reply => reply,
        }
    }

    fn lie_in_bottom(&mut self, client: Client, reply: Reply) -> Vec<(Client, Reply)> {
        let distort = |Update { height, mut digest, contents }: Update| {
            let contents = contents.map(|mut contents| {
                let runs = contents.notices.iter_mut().flat_map(|notice| &mut notice.runs);
                runs.for_each(|run| *run = other(*run));
                contents
            });
            match &contents {
                Some(contents) => digest = contents.digest(&self.cluster, &client, height),
                None => digest[0] ^= 1,
            }
            Update { height, digest, contents }
        };
        let reply = match reply {
            Reply::Update(update) => Reply::Update(distort(update)),
            Reply::Attach { sn, attachment } => {
                // Its share goes to all who came, and who may read is told that he may not.
                let mut all: Vec<(Client, Reply)> = self
                    .clients
                    .iter()
                    .filter(|it| **it != client)
                    .map(|it| (*it, Reply::Attach { sn, attachment: attachment.clone() }))
                    .collect();
                all.push((client, Reply::Attach { sn, attachment: denied(&attachment) }));
                return all;
            }
            Reply::Answer { id, answer } => {
                let answer = match answer {
                    Answer::Update(update) => Answer::Update(distort(update)),
                    Answer::Places(mut places) => {
                        places.iter_mut().for_each(|place| place.reading = Reading::Empty);
                        Answer::Places(places)
                    }
                    Answer::Resumed { mut notice, until, lost, .. } => {
                        notice.runs.iter_mut().for_each(|run| *run = other(*run));
                        Answer::Resumed { notice, until, lost, publications: Vec::new() }
                    }
                    Answer::Share(attachment) => Answer::Share(denied(&attachment)),
                    other => other,
                };
                Reply::Answer { id, answer }
            }
            reply => reply,
        };
        vec![(client, reply)]
    }

    fn be_stale(&mut self, client: &Client, reply: Reply) -> Reply {
        match reply {
            Reply::Welcome(_) => self.welcomes.entry(*client).or_insert(reply).clone(),
            Reply::Update(update) => {
                Reply::Update(Update { height: update.height + 1_000_000, digest: [7; 32], contents: None })
            }
            Reply::Answer { id, answer } => {
                let answer = match answer {
                    Answer::Result { .. } | Answer::Receipt(_) | Answer::Update(_) => Answer::No(Why::Nothing),
                    Answer::Places(mut places) => {
                        places.truncate(1);
                        Answer::Places(places)
                    }
                    Answer::Resumed { mut notice, until, lost, .. } => {
                        notice.runs.clear();
                        Answer::Resumed { notice, until: until.min(1), lost, publications: Vec::new() }
                    }
                    other => other,
                };
                Reply::Answer { id, answer }
            }
            reply => reply,
        }
    }
}

impl Liar {
    fn forge_snapshot(&mut self, answer: Answer) -> Answer {
        match (self.manner % MANNERS, answer) {
            // A state with another next number, and its own word that it is the state.
            (0, Answer::History(mut history)) => {
                if let Some(SnapshotInfo { head, .. }) = &mut history.snapshot {
                    head[NEXT_SN] ^= 1;
                    self.root = SnapshotHead::from_bytes(head).map(|it| it.root(&self.cluster));
                }
                Answer::History(history)
            }
            (0, Answer::Checkpoint(mut it)) => {
                it.state_root = self.root.unwrap_or([9; 32]);
                it.signature = self.key.sign(&it.statement(&self.cluster));
                Answer::Checkpoint(it)
            }
            // One bit of a row is another one, or the rows break off.
            (1, Answer::Part(mut part)) => {
                let middle = part.len() / 2;
                part.get_mut(middle).into_iter().for_each(|byte| *byte ^= 1);
                Answer::Part(part)
            }
            (2, Answer::Part(mut part)) => {
                part.truncate(part.len() / 2);
                Answer::Part(part)
            }
            // A certificate that certifies nothing.
            (3, Answer::History(mut history)) => {
                history.snapshot.iter_mut().for_each(|it| it.certificate = b"false".to_vec());
                Answer::History(history)
            }
            // It has everything, and nobody needs a snapshot.
            (4, Answer::History(mut history)) => {
                (history.oldest, history.snapshot) = (1, None);
                Answer::History(history)
            }
            // A snapshot of the last block that there can be.
            (5, Answer::History(mut history)) => {
                if let Some(snapshot) = &mut history.snapshot {
                    snapshot.head[..8].fill(0xff);
                    snapshot.start_height = u64::MAX;
                }
                Answer::History(history)
            }
            // Its word is on another state, to keep others' snapshots from being believed.
            (_, Answer::Checkpoint(mut it)) => {
                it.state_root[0] ^= 1;
                it.signature = self.key.sign(&it.statement(&self.cluster));
                Answer::Checkpoint(it)
            }
            (_, answer) => answer,
        }
    }
}

/// ⊥ for what may be read, and something for ⊥.
fn other(run: Run) -> Run {
    match run {
        Run::Deliver { .. } => Run::Empty { count: 1 },
        Run::Empty { .. } => Run::Deliver { sn: 0 },
    }
}

fn denied(bytes: &[u8]) -> Vec<u8> {
    match Attachment::<Ristretto255>::from_bytes(bytes) {
        Ok(it) => Attachment { what: What::Denied, ..it }.to_bytes(),
        Err(_) => bytes.to_vec(),
    }
}

/// Ways to lie to a broker that lost its folder.
const MANNERS: u64 = 7;
/// Where a snapshot's head has the lowest byte of the number of the next publication.
const NEXT_SN: usize = 23;
