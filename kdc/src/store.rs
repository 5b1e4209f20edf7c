//! A centre's folder: its secret, and the rows of its log in an embedded database.
//!
//! | table | key | value |
//! |---|---|---|
//! | `meta` | `format`, `realm` | this file's format, what names the secret |
//! | | `standby`, `address` | whether this is a stand-by, where it listens |
//! | `rows` | number, from 1 | row ‖ its link |
//! | `hashes` | hash of a registration | numbers of its row and of its revocation, 0 if it is not revoked |
//! | `names` | name | number of the newest registration of that name |
//! | `revocations` | revocation number, from 1 | number of its row |
//!
//! A commit is durable before it is answered. Reading changes nothing, so that no question makes a folder grow.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use redb::{Database, DatabaseError, ReadOnlyTable, ReadableDatabase as _, ReadableTable as _, TableDefinition};
use redb::{ReadableTableMetadata as _, WriteTransaction};
use sealcast::config::{FileError, Overwrite, private_folder, read_secret, write_secret};
use sealcast_crypto::identity::registration::{bootstrap_secret, realm};
use sealcast_crypto::identity::{Principal, Registration, keytext};
use sealcast_crypto::leighton_micali::Master;
use sealcast_crypto::secret::Secret;
use sealcast_keys::center::row::{FIRST_LINK, Link, Revocation, Row};
use sealcast_wire::{CertHash, Utc};
use zeroize::Zeroizing;

/// An open folder of a centre. Clones are the same one, and may be used by several threads.
#[derive(Clone, Debug)]
pub struct Store(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    folder: PathBuf,
    secret: Secret<32>,
    rows: Database,
    /// Held by the one who writes: no row comes between what it read and what it writes.
    writing: Mutex<()>,
    /// The first read that failed: what a registry cannot say in its answers.
    failed: Mutex<Option<String>>,
    /// What was asked for since the last row. Who reads holds it meanwhile, who has written empties it: nothing old stays.
    read: Mutex<Read>,
}

/// Registrations, and the number of the newest revocation, as they were read.
#[derive(Debug, Default)]
struct Read {
    found: BTreeMap<CertHash, (Arc<Registration>, bool)>,
    number: Option<u64>,
}

/// A registration as the centre keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Number of its row.
    pub row: u64,
    /// What was registered.
    pub registration: Registration,
    /// Its revocation, if there is one.
    pub revoked: Option<Revocation>,
}

/// Why a folder is not opened, read or written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A file or folder.
    #[error(transparent)]
    File(#[from] FileError),
    /// There is no centre in it.
    #[error("there is no centre in {}", .0.display())]
    None(PathBuf),
    /// Another process has it open.
    #[error("another process uses the centre in {}", .0.display())]
    Busy(PathBuf),
    /// A later version wrote it.
    #[error("{} was written by a later version (format {found}, this one knows {FORMAT})", path.display())]
    Newer {
        /// The folder.
        path: PathBuf,
        /// The format that it says.
        found: u8,
    },
    /// The rows were written under another secret.
    #[error("the secret in {} is not the one that its rows were written under", .0.display())]
    OtherSecret(PathBuf),
    /// The name is taken.
    #[error("'{0}' is registered already")]
    Taken(String),
    /// The name is not registered.
    #[error("'{0}' is not registered")]
    Unknown(String),
    /// No centre can say this.
    #[error("the centre cannot store this: {0}")]
    Refused(String),
    /// A stand-by stores nothing but what the first centre says.
    #[error("this is a stand-by")]
    StandBy,
    /// Rows do not follow those that are there.
    #[error("the rows do not follow those of this centre")]
    Diverged,
    /// The running centre's own trouble, or with talking to it.
    #[error("the running centre: {0}")]
    Running(String),
    /// The database's own error.
    #[error("the centre's rows cannot be read or written: {0}")]
    Rows(Box<redb::Error>),
    /// The rows say what cannot be.
    #[error("the centre's rows are damaged: {0}")]
    Damaged(&'static str),
}

/// What `?` makes of the database's errors.
macro_rules! from_rows {
    ($($error:ty),*) => {
        $(impl From<$error> for StoreError {
            fn from(error: $error) -> StoreError {
                StoreError::Rows(Box::new(error.into()))
            }
        })*
    };
}

from_rows!(redb::StorageError, redb::TableError, redb::TransactionError, redb::CommitError, redb::DatabaseError);

impl Store {
    /// Makes a centre with this secret if there is none in the folder, which is made too; and opens it.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn create(folder: &Path, secret: &Secret<32>) -> Result<Store, StoreError> {
        private_folder(folder)?;
        let text = keytext::export_centre(secret);
        match write_secret(&folder.join(SECRET), text.as_bytes(), Overwrite::Never) {
            // Another process may have been first, or the folder is an old one.
            Ok(()) | Err(FileError::Exists(_)) => Store::open(folder),
            Err(error) => Err(error.into()),
        }
    }

    /// Opens the centre in a folder that has a secret; its rows begin empty if there are none.
    ///
    /// # Errors
    /// [`StoreError::None`] without a secret, [`StoreError::Busy`] while another process has it open, and what is wrong
    /// with its files.
    pub fn open(folder: &Path) -> Result<Store, StoreError> {
        let secret = read_centre(folder)?;
        private_folder(folder)?;
        let rows = open_rows(folder)?;
        prepare(&rows, folder, &realm(&secret))?;
        let (writing, failed, read) = (Mutex::default(), Mutex::default(), Mutex::default());
        Ok(Store(Arc::new(Inner { folder: folder.to_owned(), secret, rows, writing, failed, read })))
    }

    /// Its folder.
    pub fn folder(&self) -> &Path {
        &self.0.folder
    }

    /// The centre's secret.
    pub fn secret(&self) -> &Secret<32> {
        &self.0.secret
    }

    /// Names the centre.
    pub fn realm(&self) -> [u8; 32] {
        realm(&self.0.secret)
    }

    /// Registers what `draft` says, whose realm and serial the centre sets: durable on return. A name is free again once
    /// its registration was revoked or has ended at `now`.
    ///
    /// # Errors
    /// [`StoreError::Taken`], [`StoreError::Refused`], [`StoreError::StandBy`], or the database's own.
    pub fn register(&self, draft: Registration, now: Utc) -> Result<Registration, StoreError> {
        self.append(|tables| {
            if tables.is_stand_by()? {
                return Err(StoreError::StandBy);
            }
            let is_free = |old: &Entry| old.revoked.is_some() || old.registration.not_after < now.0;
            if tables.named(&draft.name)?.is_some_and(|old| !is_free(&old)) {
                return Err(StoreError::Taken(draft.name.to_string()));
            }
            let made = Registration { realm: self.realm(), serial: tables.newest()? + 1, ..draft };
            if made.rights.is_empty() || Registration::from_bytes(&made.to_bytes()).as_ref() != Ok(&made) {
                return Err(StoreError::Refused("its name is none, or it has no rights or too many".to_owned()));
            }
            Ok((made.clone(), vec![Row::Registered(made)]))
        })
    }

    /// Revokes a registration: durable on return. The revocation's number; the same one again if it was revoked before.
    ///
    /// # Errors
    /// [`StoreError::Unknown`], [`StoreError::Refused`], [`StoreError::StandBy`], or the database's own.
    pub fn revoke(&self, principal: &CertHash, by: &str, reason: &str, at: Utc) -> Result<u64, StoreError> {
        self.append(|tables| {
            let found = tables.by_hash(principal)?;
            let (_, number) = found.ok_or_else(|| StoreError::Unknown(hex::encode(principal.0)))?;
            if number > 0 {
                return Ok((number, vec![]));
            }
            if tables.is_stand_by()? {
                return Err(StoreError::StandBy);
            }
            let number = tables.revocations()? + 1;
            let (by, reason) = (by.to_owned(), reason.to_owned());
            let row = Row::Revoked(Revocation { principal: *principal, number, at, by, reason });
            if Row::from_bytes(&row.to_bytes()).as_ref() != Ok(&row) {
                return Err(StoreError::Refused("the reason is too long".to_owned()));
            }
            Ok((number, vec![row]))
        })
    }

    /// Stores the first centre's rows after the row `after`, which must be our newest: all of them, durable on return.
    ///
    /// # Errors
    /// [`StoreError::Diverged`] if they do not follow, or the database's own. Nothing is stored then.
    pub fn follow(&self, after: u64, rows: Vec<Row>) -> Result<(), StoreError> {
        self.append(|tables| if tables.newest()? == after { Ok(((), rows)) } else { Err(StoreError::Diverged) })
    }

    /// Makes this a stand-by, which stores nothing of its own, or a first centre.
    ///
    /// # Errors
    /// The database's own.
    pub fn set_stand_by(&self, stand_by: bool) -> Result<(), StoreError> {
        let begun = self.0.rows.begin_write()?;
        begun.open_table(META)?.insert("standby", &[u8::from(stand_by)][..])?;
        Ok(begun.commit()?)
    }

    /// Whether this is a stand-by.
    ///
    /// # Errors
    /// The database's own.
    pub fn is_stand_by(&self) -> Result<bool, StoreError> {
        self.tables()?.is_stand_by()
    }

    /// Keeps where the centre listens, for those who register while it does not run.
    ///
    /// # Errors
    /// The database's own.
    pub fn set_address(&self, address: SocketAddr) -> Result<(), StoreError> {
        let begun = self.0.rows.begin_write()?;
        begun.open_table(META)?.insert("address", address.to_string().as_bytes())?;
        Ok(begun.commit()?)
    }

    /// Where the centre listens, or last did; `None` if it never ran.
    ///
    /// # Errors
    /// The database's own.
    pub fn address(&self) -> Result<Option<SocketAddr>, StoreError> {
        let tables = self.tables()?;
        let found = tables.meta.get("address")?;
        Ok(found.and_then(|it| std::str::from_utf8(it.value()).ok()?.parse().ok()))
    }

    /// The number of the newest row and its link; 0 before the first.
    ///
    /// # Errors
    /// The database's own.
    pub fn newest(&self) -> Result<(u64, Link), StoreError> {
        let tables = self.tables()?;
        let newest = tables.newest()?;
        Ok((newest, tables.link(newest)?.ok_or(StoreError::Damaged("the newest row is missing"))?))
    }

    /// The link of a row; `None` if there is no such row.
    ///
    /// # Errors
    /// The database's own.
    pub fn link(&self, row: u64) -> Result<Option<Link>, StoreError> {
        self.tables()?.link(row)
    }

    /// Rows after one, at most so many.
    ///
    /// # Errors
    /// The database's own.
    pub fn rows_after(&self, row: u64, most: usize) -> Result<Vec<Row>, StoreError> {
        self.tables()?.rows_after(row, most)
    }

    /// The registrations among the `most` rows after one, revoked ones too; and after which row to go on, if there are
    /// more.
    ///
    /// # Errors
    /// The database's own.
    pub fn entries_after(&self, row: u64, most: usize) -> Result<(Vec<Entry>, Option<u64>), StoreError> {
        let tables = self.tables()?;
        let mut entries = Vec::new();
        let mut last = row;
        for (number, row) in (row + 1..).zip(tables.rows_after(row, most)?) {
            last = number;
            if let Row::Registered(registration) = row {
                entries.push(tables.entry(number, registration)?);
            }
        }
        Ok((entries, (last < tables.newest()?).then_some(last)))
    }

    /// The newest registration of a name.
    ///
    /// # Errors
    /// The database's own.
    pub fn named(&self, name: &str) -> Result<Option<Entry>, StoreError> {
        self.tables()?.named(name)
    }

    /// How many registrations are not revoked.
    ///
    /// # Errors
    /// The database's own.
    pub fn registered(&self) -> Result<u64, StoreError> {
        let tables = self.tables()?;
        Ok(tables.hashes.len()?.saturating_sub(tables.revocations()?))
    }

    /// The registration with this hash, and whether it is revoked; nothing if it cannot be read, see [`Store::failure`].
    pub fn find(&self, principal: &CertHash) -> Option<(Arc<Registration>, bool)> {
        let mut known = lock(&self.0.read);
        if let Some(found) = known.found.get(principal) {
            return Some(found.clone());
        }
        let read = |tables: Tables| {
            let Some((row, revocation)) = tables.by_hash(principal)? else { return Ok(None) };
            Ok(Some((Arc::new(tables.registration(row)?), revocation > 0)))
        };
        let found = self.noted(self.tables().and_then(read))?;
        if known.found.len() >= READ_MAX {
            known.found.clear();
        }
        known.found.insert(*principal, found.clone());
        Some(found)
    }

    /// The number of the newest revocation, as [`Store::find`] reads.
    pub fn number(&self) -> u64 {
        let mut known = lock(&self.0.read);
        if let Some(number) = known.number {
            return number;
        }
        let read = self.tables().and_then(|tables| tables.revocations());
        known.number = read.as_ref().ok().copied();
        self.noted(read)
    }

    /// Revocations after one, at most so many: number and whose, as [`Store::find`] reads.
    pub fn revoked_since(&self, number: u64, most: usize) -> Vec<(u64, CertHash)> {
        let read = |tables: Tables| {
            let mut list = Vec::new();
            for it in tables.revocations.range(number.saturating_add(1)..)?.take(most) {
                let (number, row) = it?;
                list.push((number.value(), tables.revocation(row.value())?.principal));
            }
            Ok(list)
        };
        self.noted(self.tables().and_then(read))
    }

    /// Why reading failed, if it ever did. The centre must not go on: it would take its registrations for unknown ones.
    pub fn failure(&self) -> Option<String> {
        lock(&self.0.failed).clone()
    }

    pub(crate) fn noted<T: Default>(&self, result: Result<T, StoreError>) -> T {
        result.unwrap_or_else(|why| {
            lock(&self.0.failed).get_or_insert_with(|| why.to_string());
            T::default()
        })
    }

    fn tables(&self) -> Result<Tables, StoreError> {
        Tables::open(&self.0.rows)
    }

    /// Appends the rows that `decide` makes of what is there, durably, or none of them.
    fn append<T>(&self, decide: impl FnOnce(&Tables) -> Result<(T, Vec<Row>), StoreError>) -> Result<T, StoreError> {
        let _writing = lock(&self.0.writing);
        let tables = self.tables()?;
        let (answer, rows) = decide(&tables)?;
        if rows.is_empty() {
            return Ok(answer);
        }
        let mut newest = tables.newest()?;
        let mut link = tables.link(newest)?.ok_or(StoreError::Damaged("the newest row is missing"))?;
        // The default durability: what was committed is on disk.
        let begun = self.0.rows.begin_write()?;
        for row in &rows {
            newest += 1;
            link = row.link(&link);
            write_row(&begun, newest, row, &link)?;
        }
        begun.commit()?;
        *lock(&self.0.read) = Read::default();
        Ok(answer)
    }
}

/// A principal with its secrets, whose signing key has this seed.
pub fn principal(centre: &Secret<32>, registration: Registration, signing: Secret<32>) -> Principal {
    let long_term = Master::new(centre).long_term(&registration.hash().0);
    let groups = registration.rights.groups();
    let bootstrap = groups.into_iter().map(|it| (it.to_owned(), bootstrap_secret(centre, it))).collect();
    Principal { registration, long_term, signing, bootstrap }
}

/// The secret of the centre in a folder, also while another process runs it.
///
/// # Errors
/// [`StoreError::None`], or what is wrong with the file.
pub fn read_centre(folder: &Path) -> Result<Secret<32>, StoreError> {
    let path = folder.join(SECRET);
    let text = match read_secret(&path) {
        Err(FileError::Missing(_)) => return Err(StoreError::None(folder.to_owned())),
        other => Zeroizing::new(other?),
    };
    let wrong = |e| FileError::Content { path, what: format!("secret: {e}") };
    Ok(keytext::import_centre(&text).map_err(wrong)?)
}

fn open_rows(folder: &Path) -> Result<Database, StoreError> {
    let path = folder.join(ROWS_FILE);
    let failed = |e| StoreError::from(FileError::io(&path, e));
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
        Ok(_) => File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed)?,
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
        Err(e) => return Err(failed(e)),
    }
    Database::builder().set_cache_size(CACHE_BYTES).create(&path).map_err(|e| match e {
        DatabaseError::DatabaseAlreadyOpen => StoreError::Busy(folder.to_owned()),
        e => e.into(),
    })
}

/// Writes what a new database begins with, and checks what an old one says.
fn prepare(rows: &Database, folder: &Path, realm: &[u8; 32]) -> Result<(), StoreError> {
    let begun = rows.begin_write()?;
    {
        let mut meta = begun.open_table(META)?;
        let found = |name: &str| Ok::<_, StoreError>(meta.get(name)?.map(|it| it.value().to_vec()));
        let (format, of) = (found("format")?, found("realm")?);
        match format {
            Some(found) if found != [FORMAT] => {
                let found = *found.first().ok_or(StoreError::Damaged("it has no format"))?;
                return Err(StoreError::Newer { path: folder.to_owned(), found });
            }
            Some(_) => {}
            None => _ = meta.insert("format", &[FORMAT][..])?,
        }
        match of {
            Some(found) if found != realm => return Err(StoreError::OtherSecret(folder.to_owned())),
            Some(_) => {}
            None => _ = meta.insert("realm", &realm[..])?,
        }
    }
    // Reading needs tables that are there.
    begun.open_table(NUMBERED)?;
    begun.open_table(HASHES)?;
    begun.open_table(NAMES)?;
    begun.open_table(REVOCATIONS)?;
    Ok(begun.commit()?)
}

fn write_row(begun: &WriteTransaction, number: u64, row: &Row, link: &Link) -> Result<(), StoreError> {
    begun.open_table(NUMBERED)?.insert(number, &[&row.to_bytes()[..], link].concat()[..])?;
    let mut hashes = begun.open_table(HASHES)?;
    match row {
        Row::Registered(registration) => {
            if hashes.insert(&registration.hash().0, (number, 0))?.is_some() {
                return Err(StoreError::Damaged("a registration comes twice"));
            }
            begun.open_table(NAMES)?.insert(&*registration.name, number)?;
        }
        Row::Revoked(it) => {
            let found = hashes.get(&it.principal.0)?.map(|found| found.value());
            let mut revocations = begun.open_table(REVOCATIONS)?;
            let (Some((registered, 0)), true) = (found, revocations.len()? + 1 == it.number) else {
                return Err(StoreError::Damaged("a revocation is of nobody, comes twice or out of order"));
            };
            hashes.insert(&it.principal.0, (registered, it.number))?;
            revocations.insert(it.number, number)?;
        }
    }
    Ok(())
}

/// All tables as they were at one time.
struct Tables {
    meta: ReadOnlyTable<&'static str, &'static [u8]>,
    rows: ReadOnlyTable<u64, &'static [u8]>,
    hashes: ReadOnlyTable<&'static [u8; 32], (u64, u64)>,
    names: ReadOnlyTable<&'static str, u64>,
    revocations: ReadOnlyTable<u64, u64>,
}

impl Tables {
    fn open(rows: &Database) -> Result<Tables, StoreError> {
        let begun = rows.begin_read()?;
        Ok(Tables {
            meta: begun.open_table(META)?,
            rows: begun.open_table(NUMBERED)?,
            hashes: begun.open_table(HASHES)?,
            names: begun.open_table(NAMES)?,
            revocations: begun.open_table(REVOCATIONS)?,
        })
    }

    fn is_stand_by(&self) -> Result<bool, StoreError> {
        Ok(self.meta.get("standby")?.is_some_and(|it| it.value() == [1]))
    }

    fn newest(&self) -> Result<u64, StoreError> {
        Ok(self.rows.last()?.map_or(0, |(number, _)| number.value()))
    }

    fn revocations(&self) -> Result<u64, StoreError> {
        Ok(self.revocations.last()?.map_or(0, |(number, _)| number.value()))
    }

    fn row(&self, number: u64) -> Result<Row, StoreError> {
        let found = self.rows.get(number)?.ok_or(StoreError::Damaged("a row is missing"))?;
        read_row(found.value())
    }

    fn link(&self, number: u64) -> Result<Option<Link>, StoreError> {
        if number == 0 {
            return Ok(Some(FIRST_LINK));
        }
        let Some(found) = self.rows.get(number)? else { return Ok(None) };
        let link = found.value().last_chunk().ok_or(StoreError::Damaged("a row has no link"))?;
        Ok(Some(*link))
    }

    fn rows_after(&self, number: u64, most: usize) -> Result<Vec<Row>, StoreError> {
        let rows = self.rows.range(number.saturating_add(1)..)?.take(most);
        rows.map(|it| read_row(it?.1.value())).collect()
    }

    /// The numbers of a registration's row and of its revocation, 0 if there is none.
    fn by_hash(&self, principal: &CertHash) -> Result<Option<(u64, u64)>, StoreError> {
        Ok(self.hashes.get(&principal.0)?.map(|it| it.value()))
    }

    fn registration(&self, row: u64) -> Result<Registration, StoreError> {
        match self.row(row)? {
            Row::Registered(registration) => Ok(registration),
            Row::Revoked(_) => Err(StoreError::Damaged("a registration's row holds none")),
        }
    }

    fn revocation(&self, row: u64) -> Result<Revocation, StoreError> {
        match self.row(row)? {
            Row::Revoked(revocation) => Ok(revocation),
            Row::Registered(_) => Err(StoreError::Damaged("a revocation's row holds none")),
        }
    }

    fn named(&self, name: &str) -> Result<Option<Entry>, StoreError> {
        let Some(row) = self.names.get(name)?.map(|it| it.value()) else { return Ok(None) };
        Ok(Some(self.entry(row, self.registration(row)?)?))
    }

    fn entry(&self, row: u64, registration: Registration) -> Result<Entry, StoreError> {
        let found = self.by_hash(&registration.hash())?;
        let (_, number) = found.ok_or(StoreError::Damaged("a registration is not found by its hash"))?;
        let at = self.revocations.get(number)?.map(|it| it.value());
        let revoked = at.map(|row| self.revocation(row)).transpose()?;
        Ok(Entry { row, registration, revoked })
    }
}

fn read_row(bytes: &[u8]) -> Result<Row, StoreError> {
    let (row, _) = bytes.split_last_chunk::<32>().ok_or(StoreError::Damaged("a row has no link"))?;
    Row::from_bytes(row).map_err(|_| StoreError::Damaged("a row is malformed"))
}

/// What is locked is whole at every moment, even if a thread panicked.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

const META: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("meta");
const NUMBERED: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("rows");
const HASHES: TableDefinition<'_, &[u8; 32], (u64, u64)> = TableDefinition::new("hashes");
const NAMES: TableDefinition<'_, &str, u64> = TableDefinition::new("names");
const REVOCATIONS: TableDefinition<'_, u64, u64> = TableDefinition::new("revocations");
/// The format of the tables; a later one has another number.
const FORMAT: u8 = 1;
/// Registrations that are kept as they were read: some 10 MB.
const READ_MAX: usize = 16_384;
/// Bytes of pages kept in memory: some ten thousand registrations.
const CACHE_BYTES: usize = 32 << 20;
/// Name of the file with the centre's secret: a stand-by needs a copy.
pub const SECRET: &str = "secret";
const ROWS_FILE: &str = "rows.redb";

#[cfg(test)]
pub(crate) mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

    use sealcast_crypto::identity::{Act, Right};
    use sealcast_crypto::signature::OriginKey;

    use super::*;

    pub(crate) const NOW: Utc = Utc(1_790_000_000);

    pub(crate) fn secret() -> Secret<32> {
        Secret::from_bytes([42; 32])
    }

    pub(crate) fn signing(name: &str) -> Secret<32> {
        Secret::from_bytes(sealcast_crypto::hash::sha256(name.as_bytes()))
    }

    /// May do everything in `ward3` for a day.
    pub(crate) fn draft(name: &str) -> Registration {
        let acts = [Act::Both, Act::Lead, Act::Evict];
        Registration {
            realm: [0; 32],
            serial: 0,
            name: name.into(),
            key: OriginKey::from_seed(&signing(name)).public().clone(),
            exchange: None,
            not_before: NOW.0 - 1,
            not_after: NOW.0 + 86_400,
            rights: acts.into_iter().map(|act| Right::new("ward3", act, "#").unwrap()).collect(),
        }
    }

    /// A folder of one test, closed to others.
    pub(crate) fn folder() -> tempfile::TempDir {
        tempfile::Builder::new().permissions(Permissions::from_mode(0o700)).tempdir().unwrap()
    }

    #[test]
    fn rule_c1_what_was_read_before_a_revocation_is_not_kept() {
        let folder = folder();
        let store = Store::create(folder.path(), &secret()).unwrap();
        let whom = store.register(draft("robot"), NOW).unwrap().hash();
        let clone = store.clone();
        assert_eq!((clone.find(&whom).map(|it| it.1), clone.number()), (Some(false), 0));
        store.revoke(&whom, "desk", "lost", NOW).unwrap();
        assert_eq!((clone.find(&whom).map(|it| it.1), clone.number()), (Some(true), 1));
    }

    fn copied(from: &Path) -> tempfile::TempDir {
        let to = folder();
        for name in [SECRET, ROWS_FILE] {
            std::fs::copy(from.join(name), to.path().join(name)).unwrap();
        }
        to
    }

    #[test]
    fn a_centre_is_found_again_as_it_was() {
        let folder = folder();
        let store = Store::create(folder.path(), &secret()).unwrap();
        let [alice, bob] = ["alice", "bob"].map(|name| store.register(draft(name), NOW).unwrap());
        assert_eq!((alice.serial, bob.serial, alice.realm), (1, 2, realm(&secret())));
        assert_eq!(store.revoke(&alice.hash(), "bob", "lost laptop", NOW).unwrap(), 1);
        let was = store.newest().unwrap();
        let address = "[::1]:7680".parse().unwrap();
        assert_eq!(store.address().unwrap(), None);
        store.set_address(address).unwrap();
        drop(store);

        let store = Store::create(folder.path(), &Secret::from_bytes([1; 32])).unwrap();
        assert_eq!(*store.secret(), secret(), "an old centre keeps its secret");
        assert_eq!((store.newest().unwrap(), store.number(), store.registered().unwrap()), (was, 1, 1));
        assert_eq!(store.find(&alice.hash()), Some((Arc::new(alice.clone()), true)));
        assert_eq!(store.find(&bob.hash()), Some((Arc::new(bob.clone()), false)));
        assert_eq!(store.find(&CertHash([0; 32])), None);
        let entry = store.named("alice").unwrap().unwrap();
        let revoked = entry.revoked.unwrap();
        assert_eq!((entry.registration, revoked.by.as_str(), revoked.reason.as_str()), (alice, "bob", "lost laptop"));
        assert_eq!((store.failure(), store.address().unwrap()), (None, Some(address)));
    }

    #[test]
    fn rule_c1_what_was_answered_is_there_after_a_crash() {
        let folder = folder();
        let store = Store::create(folder.path(), &secret()).unwrap();
        let alice = store.register(draft("alice"), NOW).unwrap();
        assert_eq!(store.revoke(&alice.hash(), "admin", "", NOW).unwrap(), 1);
        // The files as a killed process leaves them: nothing was closed.
        let crashed = copied(folder.path());
        let again = Store::open(crashed.path()).unwrap();
        assert_eq!(again.find(&alice.hash()), Some((Arc::new(alice), true)));
        assert_eq!(again.newest().unwrap(), store.newest().unwrap());
    }

    #[test]
    fn a_name_is_taken_until_its_registration_is_revoked_or_over() {
        let folder = folder();
        let store = Store::create(folder.path(), &secret()).unwrap();
        let first = store.register(draft("alice"), NOW).unwrap();
        assert!(matches!(store.register(draft("alice"), NOW), Err(StoreError::Taken(name)) if name == "alice"));
        assert_eq!(store.newest().unwrap().0, 1, "nothing was stored");
        store.revoke(&first.hash(), "admin", "", NOW).unwrap();
        let second = store.register(draft("alice"), NOW).unwrap();
        assert_ne!(first.hash(), second.hash());
        let third = store.register(draft("alice"), Utc(second.not_after + 1)).unwrap();
        assert_eq!(store.named("alice").unwrap().unwrap().registration, third);
        assert_eq!(store.find(&first.hash()).map(|it| it.1), Some(true), "the old one stays revoked");
    }

    #[test]
    fn what_no_centre_can_say_is_refused() {
        let folder = folder();
        let store = Store::create(folder.path(), &secret()).unwrap();
        let nothing = Registration { rights: [].into_iter().collect(), ..draft("alice") };
        let no_name = Registration { name: "a\nb".into(), ..draft("alice") };
        for wrong in [nothing, no_name] {
            assert!(matches!(store.register(wrong, NOW), Err(StoreError::Refused(_))));
        }
        let alice = store.register(draft("alice"), NOW).unwrap().hash();
        assert!(matches!(store.revoke(&alice, "admin", &"x".repeat(201), NOW), Err(StoreError::Refused(_))));
        assert!(matches!(store.revoke(&CertHash([9; 32]), "admin", "", NOW), Err(StoreError::Unknown(_))));
        assert_eq!((store.newest().unwrap().0, store.number()), (1, 0));
    }

    #[test]
    fn a_revocation_has_one_number_however_often_it_is_asked_for() {
        let folder = folder();
        let store = Store::create(folder.path(), &secret()).unwrap();
        let all = ["a", "b", "c"].map(|name| store.register(draft(name), NOW).unwrap().hash());
        let numbers = [0, 1, 0, 2].map(|at: usize| store.revoke(&all[at], "admin", "", NOW).unwrap());
        assert_eq!((numbers, store.number()), ([1, 2, 1, 3], 3));
        assert_eq!(store.revoked_since(0, 2), [(1, all[0]), (2, all[1])]);
        assert_eq!(store.revoked_since(2, 9), [(3, all[2])]);
        assert_eq!(store.revoked_since(u64::MAX, 9), []);
        assert_eq!(store.registered().unwrap(), 0);
    }

    #[test]
    fn a_list_goes_on_where_it_ended() {
        let folder = folder();
        let store = Store::create(folder.path(), &secret()).unwrap();
        let all: Vec<_> = ["a", "b", "c"].map(|name| store.register(draft(name), NOW).unwrap()).into();
        store.revoke(&all[0].hash(), "admin", "", NOW).unwrap();
        let (mut after, mut found) = (Some(0), vec![]);
        while let Some(row) = after {
            let (entries, next) = store.entries_after(row, 2).unwrap();
            found.extend(entries.into_iter().map(|it| (it.registration, it.revoked.is_some())));
            after = next;
        }
        assert_eq!(found, all.into_iter().zip([true, false, false]).collect::<Vec<_>>());
    }

    #[test]
    fn rows_of_another_centre_follow_only_where_they_belong() {
        let folders = [folder(), folder()];
        let [first, second] = [0, 1].map(|at: usize| Store::create(folders[at].path(), &secret()).unwrap());
        second.set_stand_by(true).unwrap();
        let alice = first.register(draft("alice"), NOW).unwrap().hash();
        first.register(draft("bob"), NOW).unwrap();
        first.revoke(&alice, "admin", "", NOW).unwrap();
        let rows = first.rows_after(0, 9).unwrap();
        assert!(matches!(second.follow(1, rows[1..].to_vec()), Err(StoreError::Diverged)));
        assert!(matches!(second.follow(0, rows[2..].to_vec()), Err(StoreError::Damaged(_))));
        let twice = [&rows[..1], &rows[..1]].concat();
        assert!(matches!(second.follow(0, twice), Err(StoreError::Damaged(_))));
        assert_eq!(second.newest().unwrap(), (0, FIRST_LINK), "all or nothing");
        second.follow(0, rows[..1].to_vec()).unwrap();
        second.follow(1, rows[1..].to_vec()).unwrap();
        assert_eq!((second.newest().unwrap(), second.number()), (first.newest().unwrap(), 1));

        assert!(second.is_stand_by().unwrap());
        assert!(matches!(second.register(draft("carol"), NOW), Err(StoreError::StandBy)));
        let bob = first.named("bob").unwrap().unwrap().registration.hash();
        assert!(matches!(second.revoke(&bob, "admin", "", NOW), Err(StoreError::StandBy)));
    }

    #[test]
    fn a_folder_that_is_not_as_this_version_wrote_it_is_refused() {
        let folder = folder();
        assert!(matches!(Store::open(folder.path()), Err(StoreError::None(_))));
        let store = Store::create(folder.path(), &secret()).unwrap();
        assert!(matches!(Store::open(folder.path()), Err(StoreError::Busy(_))), "one process at a time");
        drop(store);

        let swapped = copied(folder.path());
        let other = keytext::export_centre(&Secret::from_bytes([1; 32]));
        write_secret(&swapped.path().join(SECRET), other.as_bytes(), Overwrite::Replace).unwrap();
        assert!(matches!(Store::open(swapped.path()), Err(StoreError::OtherSecret(_))));

        let later = copied(folder.path());
        let rows = open_rows(later.path()).unwrap();
        let begun = rows.begin_write().unwrap();
        begun.open_table(META).unwrap().insert("format", &[FORMAT + 1][..]).unwrap();
        begun.commit().unwrap();
        drop(rows);
        let error = Store::open(later.path()).unwrap_err();
        assert!(error.to_string().ends_with("was written by a later version (format 2, this one knows 1)"), "{error}");

        let noise = copied(folder.path());
        std::fs::write(noise.path().join(ROWS_FILE), b"no database").unwrap();
        assert!(matches!(Store::open(noise.path()), Err(StoreError::Rows(_))));
    }

    #[test]
    fn a_folder_and_its_files_are_their_owners_alone() {
        let above = tempfile::tempdir().unwrap();
        let folder = above.path().join("new/kdc");
        drop(Store::create(&folder, &secret()).unwrap());
        let mode = |path: &Path| std::fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!(mode(&folder), 0o700);
        assert_eq!([SECRET, ROWS_FILE].map(|name| mode(&folder.join(name))), [0o600, 0o600]);
        std::fs::set_permissions(folder.join(SECRET), Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(Store::open(&folder), Err(StoreError::File(FileError::Exposed { .. }))));
    }

    #[test]
    fn rule_g8_a_question_leaves_the_folder_as_it_was() {
        let folder = folder();
        let store = Store::create(folder.path(), &secret()).unwrap();
        let alice = store.register(draft("alice"), NOW).unwrap().hash();
        let before = std::fs::read(folder.path().join(ROWS_FILE)).unwrap();
        for at in 0..1000_u32 {
            store.find(&CertHash(sealcast_crypto::hash::sha256(&at.to_be_bytes())));
            assert!(store.find(&alice).is_some() && store.number() == 0 && store.revoked_since(0, 9).is_empty());
        }
        assert_eq!(std::fs::read(folder.path().join(ROWS_FILE)).unwrap(), before);
    }
}
