//! A broker that lies to its clients, for demonstrations and tests. It orders and executes as it should, so that it knows
//! what is true, and says something else; `sealcast-broker` has nothing of this.
//!
//! | asked for | it says |
//! |---|---|
//! | what a block means to the client | another digest; and with it bodies turned round, where it is to send them |
//! | its share of a publication | a share of something else |
//! | the proof of that share | a false one, with its signature |
//! | its part of a receipt | another state, with its signature |
//! | what stands at a place, bodies | ⊥; the bytes turned round |

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use sealcast_broker::cluster_file::Suite;
use sealcast_broker::genesis::Cluster;
use sealcast_broker::operation::Client;
use sealcast_broker::protocol::{Answer, Query, Refusal, Reply, Update, Welcome};
use sealcast_broker::receipt::Testimony;
use sealcast_broker::state::Reading;
use sealcast_brokerd::config::Config;
use sealcast_brokerd::failure::Failure;
use sealcast_brokerd::gateway::{ClientStatus, Handler};
use sealcast_brokerd::serve::Broker;
use sealcast_brokerd::{ending, log};
use sealcast_crypto::group::{P256, PrimeGroup, Ristretto255};
use sealcast_crypto::signature::OriginKey;
use sealcast_crypto::tdh2::{ProvedShare, Share};
use sealcast_keys::threshold::sealed::{Attachment, SignedShare, What, statement};
use sealcast_order_engine::Simplex;
use tracing::warn;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The broker's folder, as `sealcast-broker` has it.
    folder: PathBuf,
    /// End as if asked when standard input closes.
    #[arg(long)]
    until_stdin_closes: bool,
}

pub(crate) fn run(Args { folder, until_stdin_closes }: &Args) -> Result<(), Failure> {
    log::start(false, false);
    let end = ending::asked(*until_stdin_closes)?;
    let config = Config::read(folder)?;
    let (key, cluster, suite) = (OriginKey::from_seed(&config.seed), config.cluster.cluster(), config.cluster.suite);
    warn!(target: "sealcast", "this broker lies to its clients");
    let begun = Broker::start_until(config, &Simplex, &end, |honest| Arc::new(Liar { honest, key, cluster, suite }))?;
    let Some(mut broker) = begun else { return Ok(()) };
    let failure = broker.wait(&end, None);
    broker.stop();
    failure.map_or(Ok(()), Err)
}

/// Stands between a broker and its clients.
struct Liar {
    honest: Arc<dyn Handler>,
    key: OriginKey,
    cluster: Cluster,
    suite: Suite,
}

impl Handler for Liar {
    fn client_status(&self, client: &Client) -> ClientStatus {
        self.honest.client_status(client)
    }

    fn welcome(&self, client: &Client) -> Welcome {
        self.honest.welcome(client)
    }

    fn submit(&self, client: &Client, batch: Bytes) -> Result<(), Refusal> {
        self.honest.submit(client, batch)
    }

    fn answer(&self, client: &Client, query: Query) -> Answer {
        match self.honest.answer(client, query) {
            Answer::Update(update) => Answer::Update(other(update)),
            Answer::Receipt(testimony) => Answer::Receipt(Box::new(self.perjure(*testimony))),
            Answer::Places(mut places) => {
                places.iter_mut().for_each(|place| place.reading = Reading::Empty);
                Answer::Places(places)
            }
            Answer::Bodies(mut bodies) => {
                bodies.iter_mut().for_each(|(_, body)| body.reverse());
                Answer::Bodies(bodies)
            }
            Answer::Share(bytes) => Answer::Share(self.false_share(&bytes)),
            answer => answer,
        }
    }

    fn says(&self, _: &Client, message: Bytes) -> Bytes {
        match Reply::from_bytes(&message) {
            Ok(Reply::Update(update)) => Reply::Update(other(update)).to_bytes().into(),
            Ok(Reply::Attach { sn, attachment }) => {
                Reply::Attach { sn, attachment: self.false_share(&attachment) }.to_bytes().into()
            }
            _ => message,
        }
    }
}

/// What no other broker says of the block.
fn other(mut update: Update) -> Update {
    update.digest.reverse();
    for (_, body) in update.contents.iter_mut().flat_map(|contents| &mut contents.bodies) {
        body.reverse();
    }
    update
}

impl Liar {
    /// The same fact after another state.
    fn perjure(&self, mut testimony: Testimony) -> Testimony {
        testimony.state_root.reverse();
        if let Some(statement) = testimony.statement(&self.cluster) {
            testimony.signature = self.key.sign(&statement);
        }
        testimony
    }

    fn false_share(&self, attachment: &[u8]) -> Vec<u8> {
        let falsified = match self.suite {
            Suite::Ristretto255 => self.falsify::<Ristretto255>(attachment),
            Suite::P256 => self.falsify::<P256>(attachment),
        };
        falsified.unwrap_or_else(|| attachment.to_vec())
    }

    /// The attachment with an element in its share that has nothing to do with the ciphertext.
    fn falsify<G: PrimeGroup>(&self, attachment: &[u8]) -> Option<Vec<u8>> {
        let Attachment::<G> { ciphertext, what } = Attachment::from_bytes(attachment).ok()?;
        let element = G::encode(&G::hash_to_point("lying-broker", &ciphertext));
        let falsify = |share: &mut [u8]| share[2..2 + G::POINT_LEN].copy_from_slice(element.as_ref());
        let what = match what {
            What::Share(share) => {
                let mut bytes = share.encode();
                falsify(&mut bytes);
                What::Share(Share::<G>::decode(&bytes).ok()?)
            }
            What::Proved(signed) => {
                let mut bytes = signed.proved.encode();
                falsify(&mut bytes);
                let proved = ProvedShare::<G>::decode(&bytes).ok()?;
                let signature = self.key.sign(&statement(&self.cluster.0, &signed.sharing, &ciphertext, &bytes));
                What::Proved(SignedShare { proved, signature, ..signed })
            }
            What::Denied => What::Denied,
        };
        Some(Attachment { ciphertext, what }.to_bytes())
    }
}
