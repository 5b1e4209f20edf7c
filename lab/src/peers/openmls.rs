//! Members by OpenMLS, in one process that answers lines (`lab/peers/openmls`).

use std::fs;
use std::process::Command;
use std::time::Duration;

use super::Player;
use super::servers::found;
use crate::Failure;

/// A process with members of OpenMLS.
#[derive(Debug)]
pub struct OpenMls(Player);

/// Where a member says that its group is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    /// The epoch.
    pub epoch: u64,
    /// RFC 9420, section 8.7.
    pub authenticator: Vec<u8>,
    /// RFC 9420, section 7.8.
    pub tree_hash: Vec<u8>,
    /// The member's own leaf.
    pub leaf: u32,
}

/// What it took to process a message.
#[derive(Clone, Copy, Debug)]
pub struct Processed {
    /// Until it was stored.
    pub took: Duration,
    /// Bytes that were encoded for SQLite.
    pub bytes: u64,
}

impl OpenMls {
    /// Starts the process.
    ///
    /// # Errors
    /// It is not built, or does not start.
    pub fn start() -> Result<OpenMls, Failure> {
        let program = found("openmls", "openmls_peer").ok_or("OpenMLS is not here; type: make peers")?;
        Ok(OpenMls(Player::start(&mut Command::new(program))?))
    }

    /// Its name and version.
    pub fn described() -> String {
        let version = found("openmls", "version").and_then(|at| fs::read_to_string(at).ok());
        version.map_or("OpenMLS".into(), |it| it.trim().to_owned())
    }

    /// A new member, in no group: its storage is `memory`, or `sqlite` with a file.
    ///
    /// # Errors
    /// The storage cannot be made, or the process ended.
    pub fn member(&mut self, name: &str, storage: &str) -> Result<(), Failure> {
        self.ask("new", name, &[storage]).map(drop)
    }

    /// Forgets a member.
    ///
    /// # Errors
    /// The process ended.
    pub fn forget(&mut self, name: &str) -> Result<(), Failure> {
        self.ask("drop", name, &[]).map(drop)
    }

    /// A key package.
    ///
    /// # Errors
    /// It refuses, or the process ended.
    pub fn package(&mut self, name: &str) -> Result<Vec<u8>, Failure> {
        self.bytes("package", name, &[])
    }

    /// Founds a group.
    ///
    /// # Errors
    /// It refuses, or the process ended.
    pub fn create(&mut self, name: &str, group_id: &[u8]) -> Result<(), Failure> {
        self.ask("create", name, &[&hex::encode(group_id)]).map(drop)
    }

    /// Enters by a Welcome; how long that took.
    ///
    /// # Errors
    /// It refuses, or the process ended.
    pub fn join(&mut self, name: &str, welcome: &[u8], tree: &[u8]) -> Result<Duration, Failure> {
        let answer = self.ask("join", name, &[&hex::encode(welcome), &hex::encode(tree)])?;
        micros(&answer, 0)
    }

    /// Enters by a commit of its own, and how long that took.
    ///
    /// # Errors
    /// It refuses, or the process ended.
    pub fn external(&mut self, name: &str, group_info: &[u8], tree: &[u8]) -> Result<(Vec<u8>, Duration), Failure> {
        let answer = self.ask("external", name, &[&hex::encode(group_info), &hex::encode(tree)])?;
        Ok((field(&answer, 0)?, micros(&answer, 1)?))
    }

    /// A proposal: `update`, `add` with a key package in hexadecimal, or `remove` with a leaf.
    ///
    /// # Errors
    /// It refuses, or the process ended.
    pub fn propose(&mut self, name: &str, what: &[&str]) -> Result<Vec<u8>, Failure> {
        self.bytes("propose", name, what)
    }

    /// A commit of all that is proposed and of this, which waits for [`OpenMls::apply`]; and its Welcome.
    ///
    /// # Errors
    /// It refuses, or the process ended.
    pub fn commit(&mut self, name: &str, what: &[&str]) -> Result<(Vec<u8>, Option<Vec<u8>>), Failure> {
        let answer = self.ask("commit", name, what)?;
        let welcome = if answer.get(1).is_some_and(|it| it != "-") { Some(field(&answer, 1)?) } else { None };
        Ok((field(&answer, 0)?, welcome))
    }

    /// Enters the epoch of its own commit.
    ///
    /// # Errors
    /// It refuses, or the process ended.
    pub fn apply(&mut self, name: &str) -> Result<(), Failure> {
        self.ask("apply", name, &[]).map(drop)
    }

    /// Takes in a proposal or a commit.
    ///
    /// # Errors
    /// It refuses, or the process ended.
    pub fn process(&mut self, name: &str, message: &[u8]) -> Result<Processed, Failure> {
        let answer = self.ask("process", name, &[&hex::encode(message)])?;
        let bytes = answer.get(1).and_then(|it| it.parse().ok()).ok_or("no count of bytes")?;
        Ok(Processed { took: micros(&answer, 0)?, bytes })
    }

    /// The GroupInfo, without the tree.
    ///
    /// # Errors
    /// It refuses, or the process ended.
    pub fn group_info(&mut self, name: &str) -> Result<Vec<u8>, Failure> {
        self.bytes("info", name, &[])
    }

    /// The ratchet tree.
    ///
    /// # Errors
    /// It refuses, or the process ended.
    pub fn tree(&mut self, name: &str) -> Result<Vec<u8>, Failure> {
        self.bytes("tree", name, &[])
    }

    /// Where its group is.
    ///
    /// # Errors
    /// It is in none, or the process ended.
    pub fn position(&mut self, name: &str) -> Result<Position, Failure> {
        let answer = self.ask("state", name, &[])?;
        let number = |at: usize| answer.get(at).ok_or("a field lacks");
        let (epoch, leaf) = (number(0)?.parse()?, number(3)?.parse()?);
        Ok(Position { epoch, authenticator: field(&answer, 1)?, tree_hash: field(&answer, 2)?, leaf })
    }

    /// The process's id.
    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    fn bytes(&mut self, verb: &str, name: &str, fields: &[&str]) -> Result<Vec<u8>, Failure> {
        field(&self.ask(verb, name, fields)?, 0)
    }

    fn ask(&mut self, verb: &str, name: &str, fields: &[&str]) -> Result<Vec<String>, Failure> {
        let line = [&[verb, name][..], fields].concat().join(" ");
        let answer = self.0.ask(&line)?;
        match answer.split_once(' ') {
            Some(("ok", fields)) => Ok(fields.split(' ').filter(|it| !it.is_empty()).map(str::to_owned).collect()),
            _ => Err(format!("OpenMLS, {verb} of {name}: {answer}").into()),
        }
    }
}

fn field(answer: &[String], at: usize) -> Result<Vec<u8>, Failure> {
    Ok(hex::decode(answer.get(at).ok_or("a field lacks")?)?)
}

fn micros(answer: &[String], at: usize) -> Result<Duration, Failure> {
    Ok(Duration::from_micros(answer.get(at).ok_or("a field lacks")?.parse()?))
}
