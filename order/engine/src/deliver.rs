//! Hands finalised blocks to the application, as marshal gives them: by height, durable, until acknowledged.

use std::sync::Arc;

use commonware_actor::Feedback;
use commonware_consensus::marshal::Update;
use commonware_consensus::{Heightable as _, Reporter};
use commonware_utils::Acknowledgement as _;
use sealcast_order::{Ack, Delivered};

use super::codec::{self, EngineBlock};
use super::shared::Shared;

#[derive(Clone)]
pub(super) struct Deliver {
    pub(super) shared: Arc<Shared>,
}

impl Reporter for Deliver {
    type Activity = Update<EngineBlock>;

    fn report(&mut self, update: Update<EngineBlock>) -> Feedback {
        match update {
            Update::Tip(_, height, _) => self.shared.finalised(height.get()),
            Update::Block(block, receipt) => {
                let height = block.height().get();
                self.shared.finalised(height);
                let shared = self.shared.clone();
                let ack = Ack::new(move || {
                    shared.acknowledged(height);
                    receipt.acknowledge();
                });
                let hash = commonware_cryptography::Digestible::digest(&block).0;
                self.shared.application.deliver(Delivered { block: codec::shared(&block), hash }, ack);
                self.shared.look.notify_one();
            }
        }
        Feedback::Ok
    }
}
