//! The log as upstream's marshal wants it: a store of blocks and a store of certificates.
//!
//! A store that fails ends the engine with the reason, and never answers: upstream would end it with a panic instead.

use std::convert::Infallible;
use std::sync::Arc;

use commonware_codec::{Decode as _, EncodeSize, Write};
use commonware_consensus::marshal::store;
use commonware_consensus::simplex::scheme::ed25519::Scheme;
use commonware_consensus::simplex::types::Finalization;
use commonware_consensus::types::Height;
use commonware_cryptography::certificate::Verifier as _;
use commonware_cryptography::sha256::Digest;
use commonware_runtime::Handle;
use commonware_storage::archive::Identifier;
use commonware_utils::sync::AsyncMutex;
use sealcast_order::BlockSize;
use sealcast_wire::limits;

use super::heights::Heights;
use super::record::Kind;
use super::{Damage, Log, LogError, Opened, Record, Runtime};
use crate::codec::EngineBlock;
use crate::shared::Shared;

/// What both stores write to.
struct Common<E: Runtime> {
    log: Arc<AsyncMutex<Log<E>>>,
    /// Hears why the log cannot be used any more.
    shared: Arc<Shared>,
}

impl<E: Runtime> Clone for Common<E> {
    fn clone(&self) -> Common<E> {
        Common { log: self.log.clone(), shared: self.shared.clone() }
    }
}

impl<E: Runtime> Common<E> {
    /// What came out well; if it did not, the engine ends, and nothing is answered.
    async fn or_end<T>(&self, result: Result<T, LogError>) -> T {
        match result {
            Ok(value) => value,
            Err(error) => {
                self.shared.failed(error.into());
                std::future::pending().await
            }
        }
    }

    /// Appends what the log does not have; `false` if it is needed no more.
    async fn append(&self, kind: Kind, height: u64, digest: &Digest, body: &(impl EncodeSize + Write + Sync)) -> bool {
        let mut log = self.log.lock().await;
        if log.is_pruned(kind, height) {
            return false;
        }
        let result = log.append(kind, height, &digest.0, body).await;
        drop(log);
        self.or_end(result).await;
        true
    }

    async fn sync(&self) {
        let result = self.log.lock().await.sync().await;
        self.or_end(result).await;
    }

    async fn start_sync(&self) -> Handle<()> {
        let result = self.log.lock().await.start_sync().await;
        let handle = self.or_end(result).await;
        let shared = self.shared.clone();
        Handle::from_future(async move {
            handle.await.map_err(|error| {
                shared.failed(LogError::from(error).into());
                // Upstream takes this for the engine's end, which it is.
                commonware_runtime::Error::Closed
            })
        })
    }

    async fn get(&self, kind: Kind, id: Identifier<'_, Digest>) -> Option<Record> {
        let mut log = self.log.lock().await;
        let found = match id {
            Identifier::Index(height) => log.get(kind, height).await,
            Identifier::Key(digest) => match log.find(&digest.0).await {
                Ok(Some(block)) if kind == Kind::Certificate => log.get(kind, block.height).await,
                found => found,
            },
        };
        drop(log);
        self.or_end(found).await
    }

    /// A record's body as what it is an encoding of.
    async fn decoded<T>(&self, record: &Record, decode: impl FnOnce(&Record) -> Option<T>) -> T {
        let what = || Damage { file: "log".into(), what: format!("block {} cannot be decoded", record.height) };
        self.or_end(decode(record).ok_or_else(|| what().into())).await
    }

    async fn prune(&self, kind: Kind, min: Height) {
        let result = self.log.lock().await.prune(kind, min.get()).await;
        self.or_end(result).await;
    }
}

/// The final blocks.
pub(crate) struct Blocks<E: Runtime> {
    common: Common<E>,
    heights: Heights,
}

/// The certificates of final blocks.
pub(crate) struct Certificates<E: Runtime> {
    common: Common<E>,
    /// The heights that have one; of old ones only from `known_from` on.
    heights: Heights,
    known_from: u64,
}

/// Both stores over one log.
pub(crate) fn stores<E: Runtime>(
    Opened { log, heights: [blocks, certificates] }: Opened<E>,
    shared: Arc<Shared>,
) -> (Blocks<E>, Certificates<E>) {
    let common = Common { log: Arc::new(AsyncMutex::new(log)), shared };
    let mut certificates = Certificates { common: common.clone(), heights: certificates, known_from: 0 };
    certificates.bound();
    (Blocks { common, heights: blocks }, certificates)
}

impl<E: Runtime> store::Blocks for Blocks<E> {
    type Block = Arc<EngineBlock>;
    type Error = Infallible;

    async fn put(mut self, digest: Digest, block: &Arc<EngineBlock>) -> Result<Self, Infallible> {
        let height = block.height;
        if !self.heights.contains(height) && self.common.append(Kind::Block, height, &digest, &**block).await {
            self.heights.insert((height, height));
        }
        Ok(self)
    }

    async fn sync(self) -> Result<Self, Infallible> {
        self.common.sync().await;
        Ok(self)
    }

    async fn start_sync(self) -> Result<(Self, Handle<()>), Infallible> {
        let handle = self.common.start_sync().await;
        Ok((self, handle))
    }

    async fn get(&self, id: Identifier<'_, Digest>) -> Result<Option<Arc<EngineBlock>>, Infallible> {
        let Some(record) = self.common.get(Kind::Block, id).await else { return Ok(None) };
        let decode = |record: &Record| EngineBlock::decode_cfg(record.body.clone(), &BlockSize::MAX).ok();
        Ok(Some(Arc::new(self.common.decoded(&record, decode).await)))
    }

    async fn prune(mut self, min: Height) -> Result<Self, Infallible> {
        self.common.prune(Kind::Block, min).await;
        self.heights.remove_below(min.get());
        Ok(self)
    }

    fn missing_items(&self, start: Height, max: usize) -> Vec<Height> {
        self.heights.missing(start.get(), max).into_iter().map(Height::new).collect()
    }

    fn next_gap(&self, value: Height) -> (Option<Height>, Option<Height>) {
        let (end, next) = self.heights.around(value.get());
        (end.map(Height::new), next.map(Height::new))
    }

    fn last_index(&self) -> Option<Height> {
        self.heights.last().map(Height::new)
    }
}

impl<E: Runtime> Certificates<E> {
    /// Blocks that became final with a later one have no certificate of their own, so there may be as many ranges as
    /// blocks. Upstream asks for the newest range below a recent height: the oldest are forgotten here, and looked up in
    /// the log when they are asked for.
    fn bound(&mut self) {
        if let Some(known_from) = self.heights.bound(limits::LOG_CERTIFICATE_RANGES) {
            self.known_from = known_from;
        }
    }

    async fn holds(&self, height: u64) -> bool {
        if height >= self.known_from {
            return self.heights.contains(height);
        }
        self.common.get(Kind::Certificate, Identifier::Index(height)).await.is_some()
    }
}

impl<E: Runtime> store::Certificates for Certificates<E> {
    type BlockDigest = Digest;
    type Commitment = Digest;
    type Scheme = Scheme;
    type Error = Infallible;

    async fn put(
        mut self,
        height: Height,
        digest: Digest,
        finalization: &Finalization<Scheme, Digest>,
    ) -> Result<Self, Infallible> {
        let height = height.get();
        if !self.holds(height).await
            && self.common.append(Kind::Certificate, height, &digest, finalization).await
            && height >= self.known_from
        {
            self.heights.insert((height, height));
            self.bound();
        }
        Ok(self)
    }

    async fn sync(self) -> Result<Self, Infallible> {
        self.common.sync().await;
        Ok(self)
    }

    async fn start_sync(self) -> Result<(Self, Handle<()>), Infallible> {
        let handle = self.common.start_sync().await;
        Ok((self, handle))
    }

    async fn get(&self, id: Identifier<'_, Digest>) -> Result<Option<Finalization<Scheme, Digest>>, Infallible> {
        let Some(record) = self.common.get(Kind::Certificate, id).await else { return Ok(None) };
        let decode = |record: &Record| {
            Finalization::decode_cfg(record.body.clone(), &Scheme::certificate_codec_config_unbounded()).ok()
        };
        Ok(Some(self.common.decoded(&record, decode).await))
    }

    async fn has(&self, height: Height) -> Result<bool, Infallible> {
        Ok(self.holds(height.get()).await)
    }

    async fn prune(mut self, min: Height) -> Result<Self, Infallible> {
        self.common.prune(Kind::Certificate, min).await;
        self.heights.remove_below(min.get());
        Ok(self)
    }

    fn last_index(&self) -> Option<Height> {
        self.heights.last().map(Height::new)
    }

    fn ranges_from(&self, from: Height) -> impl Iterator<Item = (Height, Height)> {
        self.heights.ranges_from(from.get()).map(|(first, last)| (Height::new(first), Height::new(last)))
    }
}
