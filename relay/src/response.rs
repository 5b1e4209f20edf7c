//! What a directory answers.
//!
//! ```text
//! response = u8 1 ‖ u8 kind ‖ …
//! 0 REFUSED  u8 code ‖ …           5 CONFLICT: page    8 RATE_LIMITED: u32 ms    10 GONE: receipt ‖ receipt
//! 1 INFO     receipt key, 32 ‖ u32 entry ‖ u32 blob ‖ u32 mail ‖ u32 request ‖ u32 response        limits, bytes
//! 2 RECEIPT  receipt
//! 3 PAGE     page
//! 4 BLOBS    u16 n ‖ n·(0 | 1 ‖ bytes32)
//! 5 STORED   u16 single-use packages
//! 6 PACKAGE  0 | 1 ‖ u8 last resort ‖ u16 single-use packages left ‖ package
//! 7 MAIL     u16 n ‖ n·(u64 number ‖ bytes32) ‖ u8 more
//! page     = (0 | 1 ‖ receipt before the entries) ‖ u16 n ‖ n·entry ‖ receipt after them ‖ newest receipt
//! ```

use std::time::Duration;

use sealcast_wire::{Reader, Writer, limits};

use crate::VERSION;
use crate::codec::{FormatError, bytes32, count, option, put_bytes32, put_count, put_option};
use crate::log::{ENTRY_BYTES_LEAST, LogEntry};
use crate::receipt::Receipt;
use crate::request::Package;

/// A response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Response {
    /// The request changed nothing.
    Refused(Refusal),
    /// What the directory is.
    Info(Info),
    /// The append is in the log, at the receipt's position.
    Receipt(Receipt),
    /// Entries.
    Page(Box<Page>),
    /// Blobs in the order of the request; `None` where there is none.
    Blobs(Vec<Option<Vec<u8>>>),
    /// Blobs or packages are kept.
    Stored {
        /// Single-use packages that the device has.
        single_use: u16,
    },
    /// A key package.
    Package(Option<Taken>),
    /// Mail.
    Mail {
        /// By ascending numbers.
        items: Vec<MailItem>,
        /// There is more after those.
        more: bool,
    },
}

/// What a directory says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Info {
    /// Signs its receipts.
    pub key: [u8; 32],
    /// Bytes of an entry, at most.
    pub entry_bytes: u32,
    /// Bytes of a blob, at most.
    pub blob_bytes: u32,
    /// Bytes of one mail, at most.
    pub mail_bytes: u32,
    /// Bytes of a request, at most.
    pub request_bytes: u32,
    /// Bytes of a response, at most.
    pub response_bytes: u32,
}

/// A run of entries between two receipts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// Of the position before the first entry, unless that is position 0.
    pub before: Option<Receipt>,
    /// In their order.
    pub entries: Vec<LogEntry>,
    /// Of the last entry's position; the same as `before` if there is none.
    pub reached: Receipt,
    /// Of the log's end.
    pub newest: Receipt,
}

/// A key package that was handed out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    /// Others may have got it, too.
    pub is_last_resort: bool,
    /// Single-use packages that the device still has.
    pub left: u16,
    /// The package.
    pub package: Package,
}

/// Mail for a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MailItem {
    /// Ascends within a group.
    pub number: u64,
    /// Sealed bytes.
    pub bytes: Vec<u8>,
}

/// Why a directory refuses a request. The request changed nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The request is of another version.
    #[error("the directory speaks version {VERSION} of the protocol, and the request is of another one")]
    Version,
    /// The request does not parse.
    #[error("the request is malformed")]
    Malformed,
    /// The request, or a part of it, is over a limit.
    #[error("a part of the request is over the directory's limit")]
    TooLarge,
    /// The directory has no such group.
    #[error("the directory does not know this group")]
    UnknownGroup,
    /// Another append came first; here is what came since.
    #[error("another append came first: the log is at position {}", .0.newest.position)]
    Conflict(Box<Page>),
    /// The log does not name the signer's key, or no longer does.
    #[error("the log does not name the key that signed the request")]
    WrongKey,
    /// The signature is wrong.
    #[error("the signature of the request is wrong")]
    BadSignature,
    /// Too much was asked in a short time.
    #[error("too many requests: try again in {} ms", .retry_after.as_millis())]
    RateLimited {
        /// When a request may succeed.
        retry_after: Duration,
    },
    /// A quota is used up.
    #[error("the quota of the group or of the directory is used up")]
    Full,
    /// Entries that are asked for are no longer kept.
    #[error("the log begins at position {}: older entries are gone", .before.position + 1)]
    Gone {
        /// Of the last position that is gone.
        before: Box<Receipt>,
        /// Of the log's end.
        newest: Box<Receipt>,
    },
    /// A blob that the request names is not stored.
    #[error("the directory does not have a blob that the request names: upload it")]
    Missing,
    /// A newer request of the device has come.
    #[error("the directory has key packages of a newer request of this device")]
    Stale,
}

impl From<FormatError> for Refusal {
    fn from(why: FormatError) -> Refusal {
        match why {
            FormatError::Version => Refusal::Version,
            FormatError::Malformed => Refusal::Malformed,
            FormatError::TooLarge => Refusal::TooLarge,
        }
    }
}

impl Refusal {
    /// The number that stands for it on the wire.
    pub fn code(&self) -> u8 {
        match self {
            Refusal::Version => 1,
            Refusal::Malformed => 2,
            Refusal::TooLarge => 3,
            Refusal::UnknownGroup => 4,
            Refusal::Conflict(_) => 5,
            Refusal::WrongKey => 6,
            Refusal::BadSignature => 7,
            Refusal::RateLimited { .. } => 8,
            Refusal::Full => 9,
            Refusal::Gone { .. } => 10,
            Refusal::Missing => 11,
            Refusal::Stale => 12,
        }
    }

    fn encode(&self, w: &mut Writer) {
        w.u8(self.code());
        match self {
            Refusal::Conflict(page) => page.encode(w),
            Refusal::RateLimited { retry_after } => {
                w.u32(u32::try_from(retry_after.as_millis()).unwrap_or(u32::MAX));
            }
            Refusal::Gone { before, newest } => {
                before.encode(w);
                newest.encode(w);
            }
            _ => {}
        }
    }

    fn decode(r: &mut Reader<'_>) -> Result<Refusal, FormatError> {
        Ok(match r.u8()? {
            1 => Refusal::Version,
            2 => Refusal::Malformed,
            3 => Refusal::TooLarge,
            4 => Refusal::UnknownGroup,
            5 => Refusal::Conflict(Box::new(Page::decode(r)?)),
            6 => Refusal::WrongKey,
            7 => Refusal::BadSignature,
            8 => Refusal::RateLimited { retry_after: Duration::from_millis(r.u32()?.into()) },
            9 => Refusal::Full,
            10 => Refusal::Gone { before: Box::new(Receipt::decode(r)?), newest: Box::new(Receipt::decode(r)?) },
            11 => Refusal::Missing,
            12 => Refusal::Stale,
            _ => return Err(FormatError::Malformed),
        })
    }
}

impl Page {
    fn encode(&self, w: &mut Writer) {
        put_option(w, self.before.as_ref(), |w, receipt| receipt.encode(w));
        put_count(w, self.entries.len());
        self.entries.iter().for_each(|entry| entry.encode(w));
        self.reached.encode(w);
        self.newest.encode(w);
    }

    fn decode(r: &mut Reader<'_>) -> Result<Page, FormatError> {
        let before = option(r, |r| Ok(Receipt::decode(r)?))?;
        let n = count(r, ENTRY_BYTES_LEAST, limits::RELAY_READ_ENTRIES_MAX)?;
        let entries = (0..n).map(|_| LogEntry::decode(r)).collect::<Result<_, _>>()?;
        Ok(Page { before, entries, reached: Receipt::decode(r)?, newest: Receipt::decode(r)? })
    }
}

impl Response {
    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::new();
        w.u8(VERSION);
        match self {
            Response::Refused(why) => why.encode(w.u8(REFUSED)),
            Response::Info(it) => {
                w.u8(INFO).raw(&it.key).u32(it.entry_bytes).u32(it.blob_bytes).u32(it.mail_bytes);
                w.u32(it.request_bytes).u32(it.response_bytes);
            }
            Response::Receipt(receipt) => receipt.encode(w.u8(RECEIPT)),
            Response::Page(page) => page.encode(w.u8(PAGE)),
            Response::Blobs(blobs) => {
                put_count(w.u8(BLOBS), blobs.len());
                blobs.iter().for_each(|blob| put_option(&mut w, blob.as_ref(), |w, bytes| put_bytes32(w, bytes)));
            }
            Response::Stored { single_use } => _ = w.u8(STORED).u16(*single_use),
            Response::Package(taken) => put_option(w.u8(PACKAGE), taken.as_ref(), |w, it| {
                it.package.encode(w.u8(it.is_last_resort.into()).u16(it.left));
            }),
            Response::Mail { items, more } => {
                put_count(w.u8(MAIL), items.len());
                items.iter().for_each(|it| put_bytes32(w.u64(it.number), &it.bytes));
                w.u8((*more).into());
            }
        }
        w.finish()
    }

    /// Reads what [`Response::encode`] wrote.
    ///
    /// # Errors
    /// [`FormatError`]. Nothing is verified.
    pub fn decode(bytes: &[u8]) -> Result<Response, FormatError> {
        if bytes.len() > limits::RELAY_RESPONSE_BYTES_MAX {
            return Err(FormatError::TooLarge);
        }
        let mut r = Reader::new(bytes);
        if r.u8()? != VERSION {
            return Err(FormatError::Version);
        }
        let response = match r.u8()? {
            REFUSED => Response::Refused(Refusal::decode(&mut r)?),
            INFO => Response::Info(Info {
                key: r.array()?,
                entry_bytes: r.u32()?,
                blob_bytes: r.u32()?,
                mail_bytes: r.u32()?,
                request_bytes: r.u32()?,
                response_bytes: r.u32()?,
            }),
            RECEIPT => Response::Receipt(Receipt::decode(&mut r)?),
            PAGE => Response::Page(Box::new(Page::decode(&mut r)?)),
            BLOBS => {
                let n = count(&mut r, 1, limits::RELAY_BLOBS_MAX)?;
                let blob = |r: &mut Reader<'_>| option(r, |r| Ok(bytes32(r, limits::RELAY_BLOB_BYTES_MAX)?.to_vec()));
                Response::Blobs((0..n).map(|_| blob(&mut r)).collect::<Result<_, _>>()?)
            }
            STORED => Response::Stored { single_use: r.u16()? },
            PACKAGE => Response::Package(option(&mut r, |r| {
                let (is_last_resort, left) = (flag(r)?, r.u16()?);
                Ok(Taken { is_last_resort, left, package: Package::decode(r)? })
            })?),
            MAIL => {
                let n = count(&mut r, 8 + 4, limits::RELAY_MAIL_MAX)?;
                let item = |r: &mut Reader<'_>| {
                    let number = r.u64()?;
                    Ok(MailItem { number, bytes: bytes32(r, limits::RELAY_MAIL_BYTES_MAX)?.to_vec() })
                };
                let items = (0..n).map(|_| item(&mut r)).collect::<Result<_, FormatError>>()?;
                Response::Mail { items, more: flag(&mut r)? }
            }
            _ => return Err(FormatError::Malformed),
        };
        r.end()?;
        Ok(response)
    }
}

fn flag(r: &mut Reader<'_>) -> Result<bool, FormatError> {
    match r.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(FormatError::Malformed),
    }
}

const REFUSED: u8 = 0;
const INFO: u8 = 1;
const RECEIPT: u8 = 2;
const PAGE: u8 = 3;
const BLOBS: u8 = 4;
const STORED: u8 = 5;
const PACKAGE: u8 = 6;
const MAIL: u8 = 7;
