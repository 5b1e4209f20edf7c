//! What the owner of a running engine holds, whatever runtime it runs on.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use commonware_consensus::marshal::core::Mailbox;
use commonware_consensus::marshal::standard::Standard;
use commonware_consensus::simplex::scheme::ed25519::Scheme;
use commonware_consensus::types::Height;
use commonware_utils::channel::mpsc;
use sealcast_order::{Batch, Block, Evidence, Fault, Later, Order, Origin, Peer, Refused, StartCertificate, Status};

use super::codec::{self, EngineBlock};
use super::shared::Shared;
use super::stack;

/// How the engine's tasks are reached.
#[derive(Clone)]
pub struct Handle {
    shared: Arc<Shared>,
    mailbox: Mailbox<Scheme, Standard<EngineBlock>>,
    submit: mpsc::Sender<Batch>,
}

impl Handle {
    pub(super) fn new(
        shared: Arc<Shared>,
        mailbox: Mailbox<Scheme, Standard<EngineBlock>>,
        submit: mpsc::Sender<Batch>,
    ) -> Handle {
        Handle { shared, mailbox, submit }
    }

    pub(super) fn ended(&self) {
        self.shared.ended();
    }
}

/// An order that ends with its tasks, and with nothing else.
impl Order for Handle {
    fn submit(&self, batch: Batch) -> Result<(), Refused> {
        if !self.status().running {
            return Err(Refused::Ended);
        }
        self.shared.application.receive(Origin::Here, batch.clone())?;
        self.shared.batches.notify_waiters();
        if self.submit.try_send(batch).is_err() {
            self.shared.overflowed.store(true, Ordering::Release);
        }
        Ok(())
    }

    fn status(&self) -> Status {
        self.shared.status()
    }

    fn evidence(&self) -> Vec<Evidence> {
        self.shared.evidence()
    }

    fn fault(&self) -> Option<Fault> {
        self.shared.fault()
    }

    fn peers(&self) -> Vec<Peer> {
        self.shared.peers()
    }

    fn block(&self, height: u64) -> Later<Option<Arc<Block>>> {
        let mailbox = self.mailbox.clone();
        Box::pin(async move { mailbox.get_block(Height::new(height)).await.as_ref().map(codec::shared) })
    }

    fn start_certificate(&self, height: u64) -> Later<Option<StartCertificate>> {
        let mailbox = self.mailbox.clone();
        Box::pin(async move {
            let certificate = stack::certificate(&mailbox, height).await?;
            let header = mailbox.get_block(Height::new(height)).await.as_ref().map(codec::shared)?.header();
            Some(StartCertificate { height, certificate, header })
        })
    }

    fn prune(&self, height: u64) {
        self.mailbox.prune(Height::new(height.min(self.status().height)));
    }

    fn stop(&self) -> Later<()> {
        Box::pin(std::future::ready(()))
    }
}
