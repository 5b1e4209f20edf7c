//! What is ordered of clients that brokers do not know. Keys are free, so it must show itself who stands behind it.
//!
//! | a batch that … | is ordered if |
//! |---|---|
//! | begins with registrations | one of these holds, by a credential that may vouch for one more client |
//! | holds acts of administrators alone | all are signed by enough of them, and none of their numbers is used |
//! | holds statements of the DKG alone | the client is a broker |

use sealcast_wire::Utc;

use super::{Batch, Client, Credential, Operation};
use crate::genesis::{Cluster, Genesis};

/// How far whoever judges has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// The newest block's time.
    pub at: Utc,
    /// The number of the administrators' next act.
    pub next_act: u64,
}

/// Why a batch of a client that brokers do not know is not ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnregisteredError {
    /// Nothing in it shows who is behind it, or not now: others may have come further.
    #[error("the brokers do not know the client")]
    Unknown,
    /// A signature in it is false, or of nobody whom genesis names: for whoever judges it.
    #[error("the batch shows something false of who is behind it")]
    False,
}

impl Batch {
    /// Whether the batch of a client that is not known may be ordered. `may_vouch` says whether a credential, which holds
    /// by itself, may vouch for this client.
    ///
    /// # Errors
    /// [`UnregisteredError`].
    pub fn introduces(
        &self,
        genesis: &Genesis,
        cluster: &Cluster,
        now: Moment,
        may_vouch: impl Fn(&Credential, &Client) -> bool,
    ) -> Result<(), UnregisteredError> {
        let client = self.client();
        let acts = || self.operations().map(|(.., operation)| operation);
        if acts().all(|it| matches!(it, Operation::Dkg(_))) {
            return if genesis.brokers.contains(&client.0) { Ok(()) } else { Err(UnregisteredError::Unknown) };
        }
        if acts().all(|it| matches!(it, Operation::Administer(_))) {
            for it in acts() {
                let Operation::Administer(admin) = it else { continue };
                if admin.number < now.next_act {
                    return Err(UnregisteredError::Unknown);
                }
                admin.verify(genesis, cluster).map_err(|_| UnregisteredError::False)?;
            }
            return Ok(());
        }
        // What is only out of time says nothing of whoever sends it.
        let mut why = None;
        for it in acts() {
            let Operation::Register(registration) = it else { break };
            match registration.verify_early(genesis, cluster, &client, now.at) {
                Ok(credential) if may_vouch(&credential, &client) => return Ok(()),
                Err(error) if error.is_lasting() => {
                    why.get_or_insert(UnregisteredError::False);
                }
                Ok(_) | Err(_) => why = Some(UnregisteredError::Unknown),
            }
        }
        Err(why.unwrap_or(UnregisteredError::Unknown))
    }
}
