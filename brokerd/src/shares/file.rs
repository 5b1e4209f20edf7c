//! What a broker keeps of its secrets on disk (E7): its share, and the seed while a key is made.
//!
//! ```text
//! keys/share.0              "sealcast sealed 1\n" ‖ salt, 32 ‖ AEAD(u16 length ‖ public key ‖ x_i)        0600
//! keys/seed.0               "sealcast sealed 1\n" ‖ salt, 32 ‖ AEAD(seed)                                 0600
//! keys/made.0               when the key was made, seconds since 1970 as text
//! keys/file-keys/0          32 random bytes: the file key of epoch 0                                      0600
//! keys/file-keys/CACHEDIR.TAG                           backup programs that honour it leave this folder out
//! ```
//! All that is kept of one key epoch is sealed under that epoch's file key as (name, u32 epoch), see
//! [`at_rest`]. A broker that comes back from a backup, without `file-keys`, has lost its share, and needs a new one.
//!
//! Files are written whole or not at all: into a new file, synced, renamed, the folder synced.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use rand_core::CryptoRng;
use sealcast_crypto::at_rest::{self, CACHEDIR_TAG, OpenError};
use sealcast_crypto::group::PrimeGroup;
use sealcast_crypto::kdf::hkdf;
use sealcast_crypto::secret::Secret;
use sealcast_crypto::tdh2::{KeyShare, PublicKey};
use sealcast_wire::limits::THRESHOLD_KEY_BYTES_MAX;
use sealcast_wire::{Malformed, Reader, Utc};
use zeroize::Zeroizing;

/// A key, and this broker's share of it.
pub type Kept<G> = (PublicKey<G>, KeyShare<G>);

/// The folder of a broker's secrets.
#[derive(Clone, Debug)]
pub struct Folder {
    path: PathBuf,
}

impl Folder {
    /// Opens the folder, and makes it if there is none.
    ///
    /// # Errors
    /// [`FileError::Io`], or [`FileError::Open`] if others can look into it.
    pub fn open(path: &Path) -> Result<Folder, FileError> {
        let folder = Folder { path: path.to_path_buf() };
        for path in [path.to_path_buf(), folder.file_keys()] {
            DirBuilder::new().recursive(true).mode(0o700).create(&path).map_err(FileError::io(&path))?;
            closed(&path, &fs::metadata(&path).map_err(FileError::io(&path))?)?;
        }
        let tag = folder.file_keys().join("CACHEDIR.TAG");
        if !tag.exists() {
            write_whole(&tag, CACHEDIR_TAG)?;
        }
        Ok(folder)
    }

    /// The seed of making this epoch's key: the one that is kept, or a new one that now is.
    ///
    /// # Errors
    /// [`FileError`]: a seed that is kept and cannot be read is not replaced.
    pub fn seed(&self, epoch: u32, rng: &mut impl CryptoRng) -> Result<Secret<32>, FileError> {
        if let Some(bytes) = self.read(SEED, epoch)? {
            return Secret::try_from(&bytes[..]).map_err(|_| FileError::Content(self.at(SEED, epoch)));
        }
        let seed = Secret::random(rng);
        self.write(SEED, epoch, seed.expose(), rng)?;
        Ok(seed)
    }

    /// Keeps the share, and the key with it. The seed that made it is removed.
    ///
    /// # Errors
    /// [`FileError`].
    pub fn keep<G: PrimeGroup>(
        &self,
        key: &PublicKey<G>,
        share: &KeyShare<G>,
        rng: &mut impl CryptoRng,
    ) -> Result<(), FileError> {
        let epoch = epoch(key);
        let public = key.encode();
        let length = u16::try_from(public.len()).expect("an encoded key has a limit");
        // As long as it will be: a vector that grew would leave its old place unerased.
        let mut bytes = Zeroizing::new(Vec::with_capacity(2 + public.len() + 32));
        bytes.extend_from_slice(&length.to_be_bytes());
        bytes.extend_from_slice(&public);
        bytes.extend_from_slice(share.secret_bytes().expose());
        self.write(SHARE, epoch, &bytes, rng)?;
        self.remove(SEED, epoch)
    }

    /// The key and our share of it that were kept for an epoch; `None` if none were. A seed that a crash left beside
    /// them is removed.
    ///
    /// # Errors
    /// [`FileError`]; also for a share of another broker, or a key in another group.
    pub fn share<G: PrimeGroup>(&self, epoch: u32, index: u16) -> Result<Option<Kept<G>>, FileError> {
        let Some(bytes) = self.read(SHARE, epoch)? else { return Ok(None) };
        let read = || {
            let mut r = Reader::new(&bytes);
            let (key, x) = (r.bytes16(THRESHOLD_KEY_BYTES_MAX)?, Secret::try_from(r.take(32)?).expect("32 are taken"));
            r.end()?;
            let key = PublicKey::<G>::decode(key).map_err(|_| Malformed)?;
            let share = KeyShare::new(&key, index + 1, &x).map_err(|_| Malformed)?;
            Ok((key, share))
        };
        let read = read().map_err(|_: Malformed| FileError::Content(self.at(SHARE, epoch)))?;
        self.remove(SEED, epoch)?;
        Ok(Some(read))
    }

    /// When the key of this epoch was made: what was kept first. If nothing was, it is `now`, or when the share was kept
    /// that is there already; and that is kept.
    ///
    /// # Errors
    /// [`FileError`].
    pub fn made(&self, epoch: u32, now: Utc) -> Result<Utc, FileError> {
        let path = self.at(MADE, epoch);
        let number = |text: &[u8]| std::str::from_utf8(text).ok()?.trim().parse().ok();
        if let Some(seconds) = read_closed(&path)?.and_then(|text| number(&text)) {
            return Ok(Utc(seconds));
        }
        let kept = fs::metadata(self.at(SHARE, epoch)).and_then(|share| share.modified()).ok();
        let seconds = kept.and_then(|at| i64::try_from(at.duration_since(UNIX_EPOCH).ok()?.as_secs()).ok());
        let made = seconds.map_or(now, Utc);
        write_whole(&path, format!("{}\n", made.0).as_bytes())?;
        Ok(made)
    }

    /// A key for what else is kept of an epoch, such as shares of ciphertexts made ahead: derived from its file key,
    /// and gone with it.
    ///
    /// # Errors
    /// [`FileError`].
    pub fn derive(&self, epoch: u32, purpose: &str, rng: &mut impl CryptoRng) -> Result<Secret<32>, FileError> {
        let file_key = self.file_key_or_new(epoch, rng)?;
        let info: [&[u8]; 3] = [b"sealcast/v1/derived at rest", purpose.as_bytes(), &epoch.to_be_bytes()];
        Ok(hkdf(file_key.expose(), &[], &info))
    }

    /// Erases an epoch: overwrites its file key, so that nothing of it can be read again, and removes what was sealed.
    /// Nothing happens if it is gone. At a refresh: after the next epoch's share is kept.
    ///
    /// # Errors
    /// [`FileError::Io`].
    pub fn erase(&self, epoch: u32) -> Result<(), FileError> {
        let path = self.file_key_path(epoch);
        let overwrite = || {
            let mut file = match OpenOptions::new().write(true).open(&path) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
                file => file?,
            };
            file.write_all(&[0; 32])?;
            file.sync_all()?;
            fs::remove_file(&path)?;
            sync_folder(&path)
        };
        overwrite().map_err(FileError::io(&path))?;
        [SHARE, SEED, MADE].into_iter().try_for_each(|name| self.remove(name, epoch))
    }

    fn write(&self, name: &str, epoch: u32, plaintext: &[u8], rng: &mut impl CryptoRng) -> Result<(), FileError> {
        let file_key = self.file_key_or_new(epoch, rng)?;
        let sealed = at_rest::seal(&file_key, &[name.as_bytes(), &epoch.to_be_bytes()], plaintext, rng);
        write_whole(&self.at(name, epoch), &sealed)
    }

    /// `None` if there is no such file.
    fn read(&self, name: &str, epoch: u32) -> Result<Option<Zeroizing<Vec<u8>>>, FileError> {
        let path = self.at(name, epoch);
        let Some(bytes) = read_closed(&path)? else { return Ok(None) };
        let file_key = self.file_key(epoch)?.ok_or_else(|| FileError::Erased(path.clone()))?;
        let opened = at_rest::open(&file_key, &[name.as_bytes(), &epoch.to_be_bytes()], &bytes);
        opened.map(Some).map_err(|why| match why {
            OpenError::Other => FileError::Content(path),
            OpenError::Truncated => FileError::Truncated(path),
            OpenError::Sealed => FileError::Sealed(path),
        })
    }

    fn remove(&self, name: &str, epoch: u32) -> Result<(), FileError> {
        let path = self.at(name, epoch);
        match fs::remove_file(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            done => done.and_then(|()| sync_folder(&path)).map_err(FileError::io(&path)),
        }
    }

    fn file_key(&self, epoch: u32) -> Result<Option<Secret<32>>, FileError> {
        let path = self.file_key_path(epoch);
        let Some(bytes) = read_closed(&path)? else { return Ok(None) };
        Secret::try_from(&bytes[..]).map(Some).map_err(|_| FileError::Truncated(path))
    }

    fn file_key_or_new(&self, epoch: u32, rng: &mut impl CryptoRng) -> Result<Secret<32>, FileError> {
        if let Some(key) = self.file_key(epoch)? {
            return Ok(key);
        }
        let key = Secret::random(rng);
        write_whole(&self.file_key_path(epoch), key.expose())?;
        Ok(key)
    }

    fn at(&self, name: &str, epoch: u32) -> PathBuf {
        self.path.join(format!("{name}.{epoch}"))
    }

    fn file_keys(&self) -> PathBuf {
        self.path.join("file-keys")
    }

    fn file_key_path(&self, epoch: u32) -> PathBuf {
        self.file_keys().join(epoch.to_string())
    }
}

/// Why a secret is not kept, or not to be had. What to do stands in each.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The disk, or who may use it.
    #[error("{path}: {error}")]
    Io {
        /// Which file.
        path: PathBuf,
        /// What happened.
        #[source]
        error: io::Error,
    },
    /// Others than its owner may read it.
    #[error("{0}: others may read it; chmod go= {0}")]
    Open(PathBuf),
    /// It is shorter than it can be.
    #[error("{0}: the file is cut short")]
    Truncated(PathBuf),
    /// It was sealed under another file key, or for another epoch or purpose, or was changed.
    #[error("{0}: sealed under another file key than this folder's, or damaged")]
    Sealed(PathBuf),
    /// Its epoch's file key is gone.
    #[error("{0}: the file key of its epoch is gone (erased, or left out by a backup), and nothing opens it any more")]
    Erased(PathBuf),
    /// It is no such file, or a share of another broker.
    #[error("{0}: not what should be there: no sealed file, or another broker's share")]
    Content(PathBuf),
}

impl FileError {
    fn io(path: &Path) -> impl FnOnce(io::Error) -> FileError {
        let path = path.to_path_buf();
        move |error| FileError::Io { path, error }
    }
}

fn epoch<G: PrimeGroup>(key: &PublicKey<G>) -> u32 {
    u32::try_from(key.parameters().epoch).expect("a cluster counts its epochs in 32 bits")
}

/// A small file that only its owner may read; `None` if there is none.
fn read_closed(path: &Path) -> Result<Option<Zeroizing<Vec<u8>>>, FileError> {
    let file = match File::open(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file.map_err(FileError::io(path))?,
    };
    closed(path, &file.metadata().map_err(FileError::io(path))?)?;
    let mut bytes = Zeroizing::new(Vec::with_capacity(FILE_BYTES));
    file.take(FILE_BYTES as u64).read_to_end(&mut bytes).map_err(FileError::io(path))?;
    Ok(Some(bytes))
}

fn closed(path: &Path, metadata: &fs::Metadata) -> Result<(), FileError> {
    if metadata.permissions().mode() & 0o077 == 0 { Ok(()) } else { Err(FileError::Open(path.to_path_buf())) }
}

/// Into a new file, synced, renamed into place, the folder synced.
fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    let new = path.with_file_name(format!("{}.new", path.file_name().expect("it has a name").to_string_lossy()));
    let write = || {
        // A file left behind by a crash may have any mode.
        match fs::remove_file(&new) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&new, path)?;
        sync_folder(path)
    };
    write().map_err(FileError::io(path))
}

fn sync_folder(of: &Path) -> io::Result<()> {
    File::open(of.parent().expect("it lies in a folder"))?.sync_all()
}

const SHARE: &str = "share";
const MADE: &str = "made";
const SEED: &str = "seed";
/// More than any of these files has.
const FILE_BYTES: usize = 16 << 10;

const _: () = assert!(at_rest::OVERHEAD + 2 + THRESHOLD_KEY_BYTES_MAX + 32 <= FILE_BYTES);

#[cfg(test)]
mod tests {
    use rand_chacha::ChaCha20Rng;
    use rand_core::SeedableRng;
    use sealcast_broker::genesis::Cluster;
    use sealcast_crypto::group::{P256, Ristretto255};

    use super::super::deal;
    use super::*;

    const MAGIC: &[u8] = b"sealcast sealed 1\n";

    type R = Ristretto255;

    fn rng() -> ChaCha20Rng {
        ChaCha20Rng::seed_from_u64(1)
    }

    /// A folder of its own for each test, removed when it passes.
    fn with_folder(name: &str, test: impl FnOnce(&Folder, &Path)) {
        let path = std::env::temp_dir().join(format!("sealcast-shares-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        test(&Folder::open(&path).unwrap(), &path);
        fs::remove_dir_all(&path).unwrap();
    }

    fn dealt() -> (PublicKey<R>, Vec<KeyShare<R>>) {
        deal(&Cluster([7; 32]), 3, 4, &mut rng()).unwrap()
    }

    fn names(path: &Path) -> Vec<String> {
        let names = fs::read_dir(path).unwrap().map(|it| it.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.collect();
        names.sort();
        names
    }

    #[test]
    fn rule_e7_a_share_is_kept_sealed_and_reads_back() {
        with_folder("share", |folder, path| {
            let (key, shares) = dealt();
            assert!(folder.share::<R>(0, 2).unwrap().is_none());
            folder.keep(&key, &shares[2], &mut rng()).unwrap();
            let (read, share) = Folder::open(path).unwrap().share::<R>(0, 2).unwrap().unwrap();
            assert_eq!(read.encode(), key.encode());
            assert_eq!(share.secret_bytes(), shares[2].secret_bytes());
            let secret = shares[2].secret_bytes();
            let bytes = fs::read(path.join("share.0")).unwrap();
            assert!(!bytes.windows(32).any(|it| it == secret.expose()), "the file does not show the share");
        });
    }

    #[test]
    fn rule_e7_files_are_their_owners_alone_and_written_whole() {
        with_folder("modes", |folder, path| {
            let (key, shares) = dealt();
            folder.keep(&key, &shares[0], &mut rng()).unwrap();
            let mode = |at: &str| fs::metadata(path.join(at)).unwrap().permissions().mode() & 0o777;
            assert_eq!([mode("."), mode("file-keys")], [0o700; 2]);
            assert_eq!([mode("share.0"), mode("file-keys/0")], [0o600; 2]);
            assert_eq!(fs::metadata(path.join("file-keys/0")).unwrap().len(), 32);
            assert_eq!(names(path), ["file-keys", "share.0"], "nothing is left behind");
            assert_eq!(names(&path.join("file-keys")), ["0", "CACHEDIR.TAG"]);
            let tag = fs::read_to_string(path.join("file-keys/CACHEDIR.TAG")).unwrap();
            assert_eq!(tag.lines().next(), Some("Signature: 8a477f597d28d172789f06886806bc55"));
            // What a crash left behind is in nobody's way.
            fs::write(path.join("share.0.new"), b"half").unwrap();
            folder.keep(&key, &shares[0], &mut rng()).unwrap();
            assert!(folder.share::<R>(0, 0).unwrap().is_some());
            fs::set_permissions(path.join("share.0"), fs::Permissions::from_mode(0o640)).unwrap();
            assert!(matches!(folder.share::<R>(0, 0), Err(FileError::Open(_))));
        });
    }

    #[test]
    fn rule_e7_the_seed_is_the_same_until_the_share_is_kept() {
        with_folder("seed", |folder, path| {
            let seed = folder.seed(0, &mut rng()).unwrap();
            let again = Folder::open(path).unwrap().seed(0, &mut ChaCha20Rng::seed_from_u64(2)).unwrap();
            assert_eq!(seed, again);
            let (key, shares) = dealt();
            folder.keep(&key, &shares[0], &mut rng()).unwrap();
            assert_eq!(names(path), ["file-keys", "share.0"]);
            folder.seed(0, &mut rng()).unwrap();
            assert!(folder.share::<R>(0, 0).unwrap().is_some());
            assert_eq!(names(path), ["file-keys", "share.0"], "left behind by a crash");
        });
    }

    #[test]
    fn when_a_key_was_made_stays_known() {
        with_folder("made", |folder, path| {
            assert_eq!(folder.made(0, Utc(1_700_000_000)).unwrap(), Utc(1_700_000_000));
            let (key, shares) = dealt();
            folder.keep(&key, &shares[0], &mut rng()).unwrap();
            let again = Folder::open(path).unwrap();
            assert_eq!(again.made(0, Utc(1_800_000_000)).unwrap(), Utc(1_700_000_000));
            // Kept before times were.
            fs::remove_file(path.join("made.0")).unwrap();
            let share = File::options().write(true).open(path.join("share.0")).unwrap();
            share.set_modified(UNIX_EPOCH + std::time::Duration::from_secs(1_600_000_000)).unwrap();
            assert_eq!(folder.made(0, Utc(1_800_000_000)).unwrap(), Utc(1_600_000_000));
            folder.erase(0).unwrap();
            assert_eq!(names(path), ["file-keys"]);
        });
    }

    #[test]
    fn rule_e7_an_erased_epoch_cannot_be_read_even_from_a_copy_of_its_files() {
        with_folder("erase", |folder, path| {
            let (key, shares) = dealt();
            folder.keep(&key, &shares[0], &mut rng()).unwrap();
            let derived = folder.derive(0, "cache", &mut rng()).unwrap();
            assert_eq!(derived, folder.derive(0, "cache", &mut rng()).unwrap());
            assert_ne!(derived, folder.derive(0, "other", &mut rng()).unwrap());
            let backup = fs::read(path.join("share.0")).unwrap();
            let linked = path.join("linked");
            fs::hard_link(path.join("file-keys/0"), &linked).unwrap();

            folder.erase(0).unwrap();
            folder.erase(0).unwrap();
            assert_eq!(fs::read(&linked).unwrap(), [0; 32], "overwritten where it stood, not only removed");
            fs::remove_file(&linked).unwrap();
            assert!(folder.share::<R>(0, 0).unwrap().is_none());
            write_whole(&path.join("share.0"), &backup).unwrap();
            assert!(matches!(folder.share::<R>(0, 0), Err(FileError::Erased(_))));
            // The epoch's name can be used again, its secrets cannot.
            folder.derive(0, "cache", &mut ChaCha20Rng::seed_from_u64(5)).unwrap();
            assert!(matches!(folder.share::<R>(0, 0), Err(FileError::Sealed(_))));
        });
    }

    #[test]
    fn rule_e7_wrong_keys_truncation_and_changes_are_told_apart() {
        with_folder("damage", |folder, path| {
            let (key, shares) = dealt();
            folder.keep(&key, &shares[1], &mut rng()).unwrap();
            let at = path.join("share.0");
            let good = fs::read(&at).unwrap();
            let with = |bytes: &[u8]| {
                write_whole(&at, bytes).unwrap();
                folder.share::<R>(0, 1).map(drop).unwrap_err()
            };
            for n in [0, 5, MAGIC.len(), MAGIC.len() + 32, MAGIC.len() + 32 + 15] {
                assert!(matches!(with(&good[..n]), FileError::Truncated(_)), "{n} bytes");
            }
            assert!(matches!(with(&good[..good.len() - 1]), FileError::Sealed(_)));
            for at in [MAGIC.len(), MAGIC.len() + 40, good.len() - 1] {
                let mut changed = good.clone();
                changed[at] ^= 1;
                assert!(matches!(with(&changed), FileError::Sealed(_)), "byte {at}");
            }
            assert!(matches!(with(b"something else entirely"), FileError::Content(_)));
            write_whole(&at, &good).unwrap();
            assert!(matches!(folder.share::<R>(0, 0), Err(FileError::Content(_))), "another broker's");
            assert!(matches!(folder.share::<P256>(0, 1), Err(FileError::Content(_))), "another group's");
            // A share is no seed, and of no other epoch.
            write_whole(&path.join("seed.0"), &good).unwrap();
            assert!(matches!(folder.seed(0, &mut rng()), Err(FileError::Sealed(_))));
            write_whole(&path.join("file-keys/0"), &[1; 31]).unwrap();
            assert!(matches!(folder.share::<R>(0, 1), Err(FileError::Truncated(_))));
        });
    }
}
