//! expand_message_xmd (RFC 9380 §5.3.1): as many uniform bytes as asked for, out of a message.

use aws_lc_rs::digest::{Algorithm, Context, SHA256, SHA512};

/// Which hash expands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hash {
    Sha256,
    Sha512,
}

/// `N` uniform bytes from `message` under the domain separation tag `dst`, a concatenation of parts.
pub(super) fn expand_message_xmd<const N: usize>(hash: Hash, message: &[u8], dst: &[&[u8]]) -> [u8; N] {
    let (algorithm, block): (&'static Algorithm, usize) = match hash {
        Hash::Sha256 => (&SHA256, 64),
        Hash::Sha512 => (&SHA512, 128),
    };
    // DST_prime = DST || I2OSP(len(DST), 1)
    let mut dst_prime = dst.concat();
    dst_prime.push(u8::try_from(dst_prime.len()).expect("our tags are shorter than 256 bytes"));
    let ell = N.div_ceil(algorithm.output_len());
    assert!(ell <= 255 && N <= 65_535, "RFC 9380 §5.3.1, step 2");
    // b_0 = H(Z_pad || msg || l_i_b_str || I2OSP(0, 1) || DST_prime)
    let mut context = Context::new(algorithm);
    context.update(&[0; 128][..block]);
    context.update(message);
    context.update(&(N as u16).to_be_bytes());
    context.update(&[0]);
    context.update(&dst_prime);
    let b_0 = context.finish();
    // b_i = H(strxor(b_0, b_(i - 1)) || I2OSP(i, 1) || DST_prime), and strxor(b_0, 0) for the first
    let mut previous = vec![0; algorithm.output_len()];
    let mut out = [0; N];
    for (i, chunk) in out.chunks_mut(algorithm.output_len()).enumerate() {
        let mixed: Vec<u8> = b_0.as_ref().iter().zip(&previous).map(|(a, b)| a ^ b).collect();
        let mut context = Context::new(algorithm);
        context.update(&mixed);
        context.update(&[(i + 1) as u8]);
        context.update(&dst_prime);
        previous.copy_from_slice(context.finish().as_ref());
        chunk.copy_from_slice(&previous[..chunk.len()]);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unhex;

    /// RFC 9380 §K.1, SHA-256, DST `QUUX-V01-CS02-with-expander-SHA256-128`, len_in_bytes 0x20.
    #[test]
    fn rfc9380_k1() {
        let dst: &[&[u8]] = &[b"QUUX-V01-CS02-with-expander-", b"SHA256-128"];
        for (message, expect) in [
            (&b""[..], "68a985b87eb6b46952128911f2a4412bbc302a9d759667f87f7a21d803f07235"),
            (b"abc", "d8ccab23b5985ccea865c6c97b6e5b8350e794e603b4b97902f53a8a0d605615"),
        ] {
            assert_eq!(expand_message_xmd::<32>(Hash::Sha256, message, dst).to_vec(), unhex(expect));
        }
    }
}
