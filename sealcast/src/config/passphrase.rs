//! Keys from pass phrases: Argon2id (RFC 9106), with what it was given kept beside what the key seals.

use argon2::{Algorithm, Argon2, Params, Version};
use sealcast_crypto::secret::Secret;
use serde::{Deserialize, Serialize};

/// How a pass phrase becomes a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Stretch {
    /// The function's name; a later one has another name.
    kdf: String,
    memory_kib: u32,
    passes: u32,
    lanes: u32,
    /// 16 bytes, drawn for each file: hexadecimal.
    salt: String,
}

impl Stretch {
    /// RFC 9106 §4, the second recommended parameters: 64 MiB, 3 passes, 4 lanes.
    pub(super) fn recommended(salt: [u8; 16]) -> Stretch {
        Stretch { kdf: ARGON2ID.to_owned(), memory_kib: 64 << 10, passes: 3, lanes: 4, salt: hex::encode(salt) }
    }

    /// The key. Takes some 0.1 s and `memory_kib` of memory with the recommended parameters.
    ///
    /// # Errors
    /// What is wrong with the parameters; those of a hostile file take no more than a second or so.
    pub(super) fn key(&self, passphrase: &str) -> Result<Secret<32>, String> {
        if self.kdf != ARGON2ID {
            return Err(format!("kdf: '{}' is not known, {ARGON2ID} is", self.kdf));
        }
        let within = |name, value: u32, most| {
            if value <= most { Ok(()) } else { Err(format!("{name}: {value} is more than {most}")) }
        };
        within("memory_kib", self.memory_kib, MEMORY_KIB_MAX)?;
        within("passes", self.passes, PASSES_MAX)?;
        within("lanes", self.lanes, LANES_MAX)?;
        let salt: [u8; 16] =
            hex::decode(&self.salt).ok().and_then(|it| it.try_into().ok()).ok_or("salt: not 16 bytes, hexadecimal")?;
        let parameters = Params::new(self.memory_kib, self.passes, self.lanes, Some(32)).map_err(|e| e.to_string())?;
        let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, parameters);
        let mut made = Ok(());
        let key = Secret::filled(|bytes| made = argon2.hash_password_into(passphrase.as_bytes(), &salt, bytes));
        made.map(|()| key).map_err(|e| e.to_string())
    }
}

const ARGON2ID: &str = "argon2id";
/// The most that a file may demand: twice to four times what is recommended.
const MEMORY_KIB_MAX: u32 = 256 << 10;
const PASSES_MAX: u32 = 8;
const LANES_MAX: u32 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn salt() -> [u8; 16] {
        std::array::from_fn(|at| at as u8)
    }

    /// Values of the reference implementation in C.
    #[test]
    fn keys_are_those_of_the_reference_implementation() {
        let key = |stretch: &Stretch| hex::encode(stretch.key("correct horse").unwrap().expose());
        let recommended = Stretch::recommended(salt());
        assert_eq!(key(&recommended), "577f1ff37e9a3e52c97d39f8e83891c1b73b0e87ffe0429cee8ede2fb005fe44");
        let quick = Stretch { memory_kib: 64, passes: 1, lanes: 2, ..recommended };
        assert_eq!(key(&quick), "9a738e40413414180ba35691cef9f6cadf058bfd8a32848a65637d35fe948254");
    }

    #[test]
    fn rule_g2_a_file_cannot_demand_more_than_a_little_more() {
        let good = Stretch::recommended(salt());
        for (wrong, part) in [
            (Stretch { memory_kib: 100 << 20, ..good.clone() }, "memory_kib: 104857600 is more than 262144"),
            (Stretch { memory_kib: MEMORY_KIB_MAX + 1, ..good.clone() }, "memory_kib"),
            (Stretch { passes: u32::MAX, ..good.clone() }, "passes"),
            (Stretch { lanes: 17, ..good.clone() }, "lanes"),
            (Stretch { lanes: 0, ..good.clone() }, "thread"),
            (Stretch { memory_kib: 0, ..good.clone() }, "memory"),
            (Stretch { passes: 0, ..good.clone() }, "time cost"),
            (Stretch { salt: "00".to_owned(), ..good.clone() }, "salt: not 16 bytes"),
            (Stretch { kdf: "scrypt".to_owned(), ..good.clone() }, "kdf: 'scrypt' is not known"),
        ] {
            let begun = std::time::Instant::now();
            let error = wrong.key("x").unwrap_err();
            assert!(error.to_lowercase().contains(part), "{error}");
            assert!(begun.elapsed().as_secs() < 1);
        }
    }
}
