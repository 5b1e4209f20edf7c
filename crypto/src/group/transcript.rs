//! T(tag; x_1 … x_k): the one way in which these schemes put values into a hash.

use std::marker::PhantomData;

use aws_lc_rs::digest::{Context, SHA256, SHA512, digest};
use zeroize::Zeroize;

use super::{Element, PrimeGroup};
use crate::secret::Secret;

/// A tag and parts, encoded injectively and bound to the suite:
///
/// ```text
/// "CHIOS-v1/" ‖ suite ‖ "/" ‖ u8 |tag| ‖ tag ‖ u64 |x_1| ‖ x_1 ‖ … ‖ u64 |x_k| ‖ x_k
/// ```
/// Integers are big-endian. One that is begun by [`Transcript::secret`] erases itself.
pub(crate) struct Transcript<G: PrimeGroup> {
    tag: &'static str,
    bytes: Vec<u8>,
    secret: bool,
    group: PhantomData<G>,
}

impl<G: PrimeGroup> Drop for Transcript<G> {
    fn drop(&mut self) {
        if self.secret {
            self.bytes.zeroize();
        }
    }
}

impl<G: PrimeGroup> Transcript<G> {
    /// Of public parts.
    pub(crate) fn new(tag: &'static str) -> Transcript<G> {
        Transcript::begin(tag, false)
    }

    /// Of parts that may be secret.
    pub(crate) fn secret(tag: &'static str) -> Transcript<G> {
        Transcript::begin(tag, true)
    }

    fn begin(tag: &'static str, secret: bool) -> Transcript<G> {
        // Larger than any transcript that holds secrets: a buffer that grew would leave its old place unerased.
        let mut bytes = Vec::with_capacity(512);
        bytes.extend_from_slice(b"CHIOS-v1/");
        bytes.extend_from_slice(G::NAME.as_bytes());
        bytes.push(b'/');
        bytes.push(u8::try_from(tag.len()).expect("tags are short"));
        bytes.extend_from_slice(tag.as_bytes());
        Transcript { tag, bytes, secret, group: PhantomData }
    }

    #[must_use]
    pub(crate) fn add(mut self, part: &[u8]) -> Self {
        self.bytes.extend_from_slice(&(part.len() as u64).to_be_bytes());
        self.bytes.extend_from_slice(part);
        self
    }

    #[must_use]
    pub(crate) fn element(self, element: &Element<G>) -> Self {
        self.add(element.bytes())
    }

    #[must_use]
    pub(crate) fn elements<'a>(self, elements: impl IntoIterator<Item = &'a Element<G>>) -> Self {
        elements.into_iter().fold(self, Transcript::element)
    }

    /// SHA-256 of it.
    pub(crate) fn hash(self) -> [u8; 32] {
        digest(&SHA256, &self.bytes).as_ref().try_into().expect("SHA-256 gives 32 bytes")
    }

    /// SHA-256 of it with one more part, which is long and not secret.
    pub(crate) fn hash_with(self, last: &[u8]) -> [u8; 32] {
        let mut context = Context::new(&SHA256);
        context.update(&self.bytes);
        context.update(&(last.len() as u64).to_be_bytes());
        context.update(last);
        context.finish().as_ref().try_into().expect("SHA-256 gives 32 bytes")
    }

    /// SHA-512 of it.
    pub(crate) fn wide(self) -> Secret<64> {
        Secret::filled(|it| it.copy_from_slice(digest(&SHA512, &self.bytes).as_ref()))
    }

    /// HS: its scalar.
    pub(crate) fn scalar(self) -> G::Scalar {
        G::hash_to_scalar(self.tag, &self.bytes)
    }

    /// HG: its element, to which nobody knows a logarithm.
    pub(crate) fn to_element(&self) -> Element<G> {
        let dst = ["CHIOS-v1/", self.tag, "/", G::HASH_TO_GROUP].concat();
        Element::new(G::hash_to_point(&dst, &self.bytes)).expect("no message is known that hashes to the identity")
    }
}
