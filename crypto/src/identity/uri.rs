//! Percent-encoding of what stands between the colons of our URIs (RFC 3986, section 2; RFC 8141).

/// Writes text so that it may stand in a URN: unreserved characters, and those in `also`, stay as they
/// are, every other byte becomes `%XX`.
pub(super) fn encode(text: &str, also: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        let c = char::from(byte);
        if c.is_ascii_alphanumeric() || UNRESERVED.contains(c) || (byte.is_ascii() && also.contains(c)) {
            out.push(c);
        } else {
            out.push('%');
            out.push(char::from(HEX[usize::from(byte >> 4)]));
            out.push(char::from(HEX[usize::from(byte & 15)]));
        }
    }
    out
}

/// Reads what [`encode`] wrote. Characters that a strict writer would have encoded are taken as they are:
/// people write certificates by hand, with `#` in them. `None` if an escape is broken or the bytes are
/// not UTF-8.
pub(super) fn decode(text: &str) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'%' => digit(bytes.next()?)? << 4 | digit(bytes.next()?)?,
            byte => byte,
        });
    }
    String::from_utf8(out).ok()
}

fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    }
}

/// RFC 3986, 2.3, beside letters and digits.
const UNRESERVED: &str = "-._~";
const HEX: &[u8; 16] = b"0123456789ABCDEF";

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn broken_escapes_are_refused() {
        for broken in ["%", "%4", "%4g", "a%FF"] {
            assert_eq!(decode(broken), None, "{broken}");
        }
        assert_eq!(encode("a:b/#%é", "/"), "a%3Ab/%23%25%C3%A9");
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(text in "\\PC{0,30}") {
            prop_assert_eq!(decode(&encode(&text, ":/+")), Some(text));
        }
    }
}
