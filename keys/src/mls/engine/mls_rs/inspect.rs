//! What messages and records say before anything of them is verified.

use mls_rs::group::{ContentType, GroupInfo, LeafNode, LeafNodeSource, Sender};
use mls_rs::mls_rs_codec::MlsDecode;
use mls_rs::{MlsMessage, MlsMessageDescription};
use mls_rs_core::crypto::HpkePublicKey;
use mls_rs_core::extension::ExtensionType;
use mls_rs_core::key_package::KeyPackageData;
use mls_rs_core::time::MlsTime;
use sealcast_crypto::hash::sha256;
use sealcast_wire::Utc;
use sealcast_wire::codec::{Reader, Writer};
use zeroize::Zeroizing;

use super::identity::{claim_of, extensions_of};
use super::record::encoded;
use crate::mls::engine::{
    Content, Envelope, GroupSummary, KeyPackage, LeafIndex, Malformed, PackageKind, Reference, put_length,
};

/// What a key package says.
///
/// # Errors
/// [`Malformed`] if it is none.
pub(super) fn key_package(bytes: &[u8]) -> Result<KeyPackage, Malformed> {
    let message = MlsMessage::from_bytes(bytes).map_err(|_| Malformed)?;
    let package = message.into_key_package().ok_or(Malformed)?;
    let bytes = encoded(&package);
    let (from, until) = lifetime(&bytes).ok_or(Malformed)?;
    let last_resort = package.extensions.has_extension(ExtensionType::LAST_RESORT_KEY_PACKAGE);
    Ok(KeyPackage {
        reference: package_reference(&bytes),
        suite: package.cipher_suite.raw_value(),
        claim: claim_of(package.signing_identity()).map_err(|_| Malformed)?,
        from,
        until,
        kind: if last_resort { PackageKind::LastResort } else { PackageKind::SingleUse },
    })
}

/// From when until when a key package is valid. mls-rs shows the end alone; the leaf lies behind version, suite and key
/// (RFC 9420, section 10).
fn lifetime(package: &[u8]) -> Option<(Utc, Utc)> {
    let mut rest = package.get(4..)?;
    HpkePublicKey::mls_decode(&mut rest).ok()?;
    match LeafNode::mls_decode(&mut rest).ok()?.leaf_node_source {
        LeafNodeSource::KeyPackage(it) => Some((utc_of(it.not_before), utc_of(it.not_after))),
        _ => None,
    }
}

/// For which key packages a Welcome is.
///
/// # Errors
/// [`Malformed`] if it is none.
pub(super) fn welcome(bytes: &[u8]) -> Result<Vec<Reference>, Malformed> {
    let message = MlsMessage::from_bytes(bytes).map_err(|_| Malformed)?;
    let MlsMessageDescription::Welcome { key_package_refs, .. } = message.description() else {
        return Err(Malformed);
    };
    Ok(key_package_refs.into_iter().map(|it| Reference(it.to_vec())).collect())
}

/// Which epoch a GroupInfo is of.
pub(super) fn group_info(info: &GroupInfo) -> GroupSummary {
    let context = info.group_context();
    GroupSummary {
        group_id: context.group_id.clone(),
        suite: context.cipher_suite.raw_value(),
        epoch: context.epoch,
        tree_hash: context.tree_hash.clone(),
        by: LeafIndex(info.sender()),
        extensions: extensions_of(&context.extensions),
    }
}

/// Which group and epoch a message is for.
///
/// # Errors
/// [`Malformed`] if it is no message of a group, or an application message that is not sealed (RFC 9420, section 6).
pub(super) fn envelope(message: &MlsMessage) -> Result<Envelope, Malformed> {
    let (group_id, epoch, content) = match message.description() {
        MlsMessageDescription::PrivateProtocolMessage { group_id, epoch_id, content_type } => {
            let content = match content_type {
                ContentType::Application => Content::Application,
                ContentType::Proposal => Content::Proposal,
                ContentType::Commit => Content::Commit,
            };
            (group_id, epoch_id, content)
        }
        MlsMessageDescription::PublicProtocolMessage { group_id, epoch_id, content_type, sender, .. } => {
            let content = match (content_type, sender) {
                (ContentType::Proposal, _) => Content::Proposal,
                (ContentType::Commit, Sender::NewMemberCommit) => Content::ExternalCommit,
                (ContentType::Commit, _) => Content::Commit,
                (ContentType::Application, _) => return Err(Malformed),
            };
            (group_id, epoch_id, content)
        }
        _ => return Err(Malformed),
    };
    Ok(Envelope { group_id: group_id.to_vec(), epoch, content })
}

/// RFC 9420, section 5.2: RefHash("MLS 1.0 KeyPackage Reference", package), SHA-256 in both suites.
pub(super) fn package_reference(package: &[u8]) -> Reference {
    let mut input = Vec::with_capacity(package.len() + 64);
    for part in [PACKAGE_LABEL, package] {
        put_length(&mut input, part.len());
        input.extend_from_slice(part);
    }
    Reference(sha256(&input).to_vec())
}

/// Reads the secret of a key package; `None` if it is none of this version.
pub(super) fn package_secret(record: &[u8]) -> Option<(Vec<u8>, KeyPackageData)> {
    let mut r = Reader::new(record);
    if r.u8().ok()? != PACKAGE_VERSION {
        return None;
    }
    let length = r.u32().ok()? as usize;
    let reference = r.take(length).ok()?.to_vec();
    Some((reference, KeyPackageData::mls_decode(&mut r.rest()).ok()?))
}

/// The secret of a key package as a record: version 1 ‖ u32 ‖ reference ‖ what mls-rs stores of it.
pub(super) fn put_package_secret(reference: &[u8], package: &KeyPackageData) -> Zeroizing<Vec<u8>> {
    let package = Zeroizing::new(encoded(package));
    let mut w = Writer::with_capacity(5 + reference.len() + package.len());
    w.u8(PACKAGE_VERSION).u32(reference.len() as u32).raw(reference).raw(&package);
    Zeroizing::new(w.finish())
}

fn utc_of(time: MlsTime) -> Utc {
    Utc(i64::try_from(time.seconds_since_epoch()).unwrap_or(i64::MAX))
}

/// RFC 9420, section 5.2.
const PACKAGE_LABEL: &[u8] = b"MLS 1.0 KeyPackage Reference";
/// Of the form of a key package's secret.
const PACKAGE_VERSION: u8 = 1;
