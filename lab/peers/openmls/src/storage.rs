//! The storages that OpenMLS brings, as providers that count what they encode.

use std::cell::Cell;

use openmls::prelude::OpenMlsProvider;
use openmls_rust_crypto::{MemoryStorage, RustCrypto};
use openmls_sqlite_storage::{Codec, Connection, SqliteStorageProvider};
use openmls_traits::storage::{CURRENT_VERSION, StorageProvider};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::Failure;

/// OpenMLS's default cryptography with a storage.
pub(crate) struct Provider<S> {
    crypto: RustCrypto,
    storage: S,
}

impl<S: StorageProvider<CURRENT_VERSION>> OpenMlsProvider for Provider<S> {
    type CryptoProvider = RustCrypto;
    type RandProvider = RustCrypto;
    type StorageProvider = S;

    fn storage(&self) -> &S {
        &self.storage
    }

    fn crypto(&self) -> &RustCrypto {
        &self.crypto
    }

    fn rand(&self) -> &RustCrypto {
        &self.crypto
    }
}

/// Its default storage: JSON in a map in memory.
pub(crate) fn memory() -> Provider<MemoryStorage> {
    Provider { crypto: RustCrypto::default(), storage: MemoryStorage::default() }
}

/// Its SQLite storage in this file, with SQLite's defaults: each value is a transaction of its own, with a rollback journal.
pub(crate) fn sqlite(path: &str) -> Result<Provider<Sqlite>, Failure> {
    let mut storage = SqliteStorageProvider::new(Connection::open(path)?);
    storage.run_migrations()?;
    Ok(Provider { crypto: RustCrypto::default(), storage })
}

pub(crate) type Sqlite = SqliteStorageProvider<Json, Connection>;

/// The codec of OpenMLS's tests.
#[derive(Default)]
pub(crate) struct Json;

impl Codec for Json {
    type Error = serde_json::Error;

    fn to_vec<T: Serialize>(value: &T) -> Result<Vec<u8>, serde_json::Error> {
        let bytes = serde_json::to_vec(value)?;
        ENCODED.set(ENCODED.get() + bytes.len() as u64);
        Ok(bytes)
    }

    fn from_slice<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, serde_json::Error> {
        serde_json::from_slice(bytes)
    }
}

/// How many bytes were encoded for SQLite since the process began.
pub(crate) fn encoded_bytes() -> u64 {
    ENCODED.get()
}

thread_local! {
    static ENCODED: Cell<u64> = const { Cell::new(0) };
}
