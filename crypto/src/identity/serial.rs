//! Serial numbers of certificates.

use std::fmt;
use std::str::FromStr;

/// A certificate's serial number, unique within its authority: a positive integer of at most 20 bytes
/// (RFC 5280, 4.1.2.2). Ordered as a number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Serial {
    /// How many of `bytes` there are; first, so that the derived order is the numbers' order.
    len: u8,
    /// Big-endian, without leading zeros, zeros after `len`.
    bytes: [u8; SERIAL_LEN],
}

/// The bytes or the text are no serial number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a serial number is a positive number of at most 20 bytes: decimal, or hexadecimal after 0x")]
pub struct SerialError;

impl Serial {
    /// From big-endian bytes; leading zeros mean nothing.
    ///
    /// # Errors
    /// Zero, or more than 20 bytes.
    pub fn new(bytes: &[u8]) -> Result<Serial, SerialError> {
        let zeros = bytes.iter().take_while(|b| **b == 0).count();
        let digits = &bytes[zeros..];
        if digits.is_empty() || digits.len() > SERIAL_LEN {
            return Err(SerialError);
        }
        let mut serial = Serial { len: digits.len() as u8, bytes: [0; SERIAL_LEN] };
        serial.bytes[..digits.len()].copy_from_slice(digits);
        Ok(serial)
    }

    /// From the contents of a DER integer, which is signed.
    ///
    /// # Errors
    /// As [`Serial::new`], and if it is negative.
    pub fn from_der(contents: &[u8]) -> Result<Serial, SerialError> {
        if contents.first().is_some_and(|b| b & 0x80 != 0) { Err(SerialError) } else { Serial::new(contents) }
    }

    /// Big-endian, without leading zeros.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// The number, where it is one that was counted.
    pub fn number(&self) -> Option<u64> {
        let bytes = self.as_bytes();
        (bytes.len() <= 8).then(|| bytes.iter().fold(0, |n, b| n << 8 | u64::from(*b)))
    }
}

/// A counted serial; zero is none.
impl TryFrom<u64> for Serial {
    type Error = SerialError;

    fn try_from(number: u64) -> Result<Serial, SerialError> {
        Serial::new(&number.to_be_bytes())
    }
}

/// Decimal where it is short (`17`), else hexadecimal (`0x…`).
impl fmt::Display for Serial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.number() {
            Some(n) => write!(f, "{n}"),
            None => {
                f.write_str("0x")?;
                self.as_bytes().iter().try_for_each(|b| write!(f, "{b:02x}"))
            }
        }
    }
}

impl FromStr for Serial {
    type Err = SerialError;

    fn from_str(text: &str) -> Result<Serial, SerialError> {
        let Some(digits) = text.strip_prefix("0x") else {
            return Serial::try_from(text.parse::<u64>().map_err(|_| SerialError)?);
        };
        let nibbles: Option<Vec<u8>> =
            digits.chars().map(|c| c.to_digit(16).and_then(|d| u8::try_from(d).ok())).collect();
        let nibbles = nibbles.ok_or(SerialError)?;
        let bytes: Vec<u8> = nibbles.rchunks(2).rev().map(|pair| pair.iter().fold(0, |n, d| n << 4 | d)).collect();
        Serial::new(&bytes)
    }
}

impl fmt::Debug for Serial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{self}")
    }
}

/// RFC 5280, 4.1.2.2.
const SERIAL_LEN: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serials_are_ordered_as_numbers_and_read_as_written() {
        let mut all: Vec<Serial> =
            ["256", "2", "0xffffffffffffffffffff", "17", "255"].iter().map(|t| t.parse().expect("valid")).collect();
        all.sort();
        let written: Vec<String> = all.iter().map(Serial::to_string).collect();
        assert_eq!(written, ["2", "17", "255", "256", "0xffffffffffffffffffff"]);
        assert_eq!(written.iter().map(|t| t.parse()).collect::<Result<Vec<Serial>, _>>(), Ok(all));
    }

    #[test]
    fn what_is_no_positive_number_is_refused() {
        assert_eq!(Serial::from_der(&[0x80]), Err(SerialError));
        assert_eq!(Serial::from_der(&[0, 0x80]), Serial::try_from(128));
        assert_eq!(Serial::new(&[0, 0]), Err(SerialError));
        assert_eq!(Serial::new(&[1; 21]), Err(SerialError));
        for text in ["", "0", "-1", "0x", "0xg", "x", "0x+1"] {
            assert_eq!(text.parse::<Serial>(), Err(SerialError), "{text}");
        }
    }
}
