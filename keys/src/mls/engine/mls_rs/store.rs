//! What mls-rs calls storage, and is none: cells through which one state or one key package passes at a time.
//!
//! An engine stores nothing; what comes to lie here the caller gets as a record.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};

use mls_rs_core::group::{EpochRecord, GroupState, GroupStateStorage};
use mls_rs_core::key_package::{KeyPackageData, KeyPackageStorage};
use zeroize::Zeroizing;

/// The state that was written last, or shall be loaded next.
#[derive(Clone, Default)]
pub(super) struct StateCell(Arc<Mutex<Option<Zeroizing<Vec<u8>>>>>);

/// The key package that was made last, or shall be used next.
#[derive(Clone, Default)]
pub(super) struct PackageCell(Arc<Mutex<Option<NamedPackage>>>);

/// A key package with its private keys, and the reference that names it.
type NamedPackage = (Vec<u8>, KeyPackageData);

impl StateCell {
    /// Puts a state in.
    pub(super) fn put(&self, state: Zeroizing<Vec<u8>>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(state);
    }

    /// Takes the state out.
    pub(super) fn take(&self) -> Option<Zeroizing<Vec<u8>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl PackageCell {
    /// Puts a key package in, with the reference that names it.
    pub(super) fn put(&self, reference: Vec<u8>, package: KeyPackageData) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((reference, package));
    }

    /// Takes the key package out.
    pub(super) fn take(&self) -> Option<NamedPackage> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl GroupStateStorage for StateCell {
    type Error = Infallible;

    fn state(&self, _: &[u8]) -> Result<Option<Zeroizing<Vec<u8>>>, Infallible> {
        Ok(self.take())
    }

    fn epoch(&self, _: &[u8], _: u64) -> Result<Option<Zeroizing<Vec<u8>>>, Infallible> {
        Ok(None)
    }

    fn write(&mut self, state: GroupState, _: Vec<EpochRecord>, _: Vec<EpochRecord>) -> Result<(), Infallible> {
        self.put(state.data);
        Ok(())
    }

    fn max_epoch_id(&self, _: &[u8]) -> Result<Option<u64>, Infallible> {
        Ok(None)
    }
}

impl KeyPackageStorage for PackageCell {
    type Error = Infallible;

    fn delete(&mut self, _: &[u8]) -> Result<(), Infallible> {
        self.take();
        Ok(())
    }

    fn insert(&mut self, reference: Vec<u8>, package: KeyPackageData) -> Result<(), Infallible> {
        self.put(reference, package);
        Ok(())
    }

    fn get(&self, reference: &[u8]) -> Result<Option<KeyPackageData>, Infallible> {
        let cell = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(cell.as_ref().filter(|(name, _)| name == reference).map(|(_, package)| package.clone()))
    }
}
