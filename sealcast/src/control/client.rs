//! The other processes' side of a session's local socket.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sealcast_wire::{Guarantee, limits};

use super::{
    AdmissionInfo, Answer, Change, EXTENSION, GroupInfo, Heard, LINE_BYTES_MAX, LogLine, PendingInfo, Reply, Request,
    Sent,
};
use crate::code::Code;
use crate::config::Home;
use crate::error::{Error, Result};

/// A connection to a running session.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<UnixStream>,
    path: PathBuf,
}

/// The sockets of all running sessions of this user.
pub fn running(home: &Home) -> Vec<Client> {
    let entries = fs::read_dir(home.runtime()).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> =
        entries.map(|e| e.path()).filter(|p| p.extension().is_some_and(|x| x == EXTENSION)).collect();
    paths.sort();
    paths.iter().filter_map(|p| Client::connect(p).ok().flatten()).collect()
}

impl Client {
    /// Connects; `None` if no session has this socket.
    ///
    /// # Errors
    /// The system's own.
    pub fn connect(path: &Path) -> Result<Option<Client>> {
        match UnixStream::connect(path) {
            Ok(stream) => {
                stream.set_read_timeout(Some(TIMEOUT)).map_err(|e| Error::system(path.display(), &e))?;
                Ok(Some(Client { stream: BufReader::new(stream), path: path.to_owned() }))
            }
            // A socket that nobody listens on is what a killed process leaves behind.
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => Ok(None),
            Err(e) => Err(Error::system(path.display(), &e)),
        }
    }

    /// What the session knows of its group.
    ///
    /// # Errors
    /// The session's, or [`Code::Closed`] if it went away.
    pub fn show(&mut self) -> Result<GroupInfo> {
        match self.ask(&Request::Show, &[])? {
            Answer::Show(info) => Ok(*info),
            other => Err(self.surprised(&other)),
        }
    }

    /// What happened in the group, oldest first.
    ///
    /// # Errors
    /// As [`Client::show`].
    pub fn log(&mut self) -> Result<Vec<LogLine>> {
        match self.ask(&Request::Log, &[])? {
            Answer::Log(lines) => Ok(lines),
            other => Err(self.surprised(&other)),
        }
    }

    /// Has the session publish; who can get it, and the message's number, its position where it is ordered.
    ///
    /// # Errors
    /// As [`Client::show`].
    pub fn publish(&mut self, topic: &str, body: &[u8], guarantee: Guarantee) -> Result<Sent> {
        let request = Request::Publish { topic: topic.to_owned(), guarantee: guarantee.into(), bytes: body.len() };
        match self.ask(&request, body)? {
            Answer::Published { number, others, here } => Ok(Sent { number, others, here }),
            other => Err(self.surprised(&other)),
        }
    }

    /// Has the session subscribe; the connection brings messages from now on.
    ///
    /// # Errors
    /// As [`Client::show`].
    pub fn subscribe(mut self, pattern: &str, regex: bool) -> Result<Listening> {
        self.done(&Request::Subscribe { pattern: pattern.to_owned(), regex })?;
        Ok(Listening { client: self, missed: 0 })
    }

    /// Has the group agree on a new key.
    ///
    /// # Errors
    /// As [`Client::show`].
    pub fn rotate(&mut self) -> Result<Change> {
        self.change(&Request::Rotate)
    }

    /// Makes those members that are here the primary component, by force; the name of who orders.
    ///
    /// # Errors
    /// As [`Client::show`].
    pub fn force_primary(&mut self) -> Result<String> {
        match self.ask(&Request::Primary, &[])? {
            Answer::Ordered { sequencer } => Ok(sequencer),
            other => Err(self.surprised(&other)),
        }
    }

    /// Evicts a member by its name or certificate.
    ///
    /// # Errors
    /// As [`Client::show`].
    pub fn evict(&mut self, who: &str, reason: &str) -> Result<Change> {
        self.change(&Request::Evict { who: who.to_owned(), reason: reason.to_owned(), all: false })
    }

    /// Evicts all members of a name.
    ///
    /// # Errors
    /// As [`Client::show`].
    pub fn evict_all(&mut self, name: &str, reason: &str) -> Result<Change> {
        self.change(&Request::Evict { who: name.to_owned(), reason: reason.to_owned(), all: true })
    }

    /// Who waits to be let in.
    ///
    /// # Errors
    /// As [`Client::show`].
    pub fn pending(&mut self) -> Result<Vec<PendingInfo>> {
        match self.ask(&Request::Pending, &[])? {
            Answer::Pending(all) => Ok(all),
            other => Err(self.surprised(&other)),
        }
    }

    /// Lets in devices by their certificates or names.
    ///
    /// # Errors
    /// As [`Client::show`].
    pub fn admit(&mut self, who: &[String]) -> Result<AdmissionInfo> {
        match self.ask(&Request::Admit { who: who.to_vec() }, &[])? {
            Answer::Admitted(admission) => Ok(admission),
            other => Err(self.surprised(&other)),
        }
    }

    /// Has the session leave the group and end.
    ///
    /// # Errors
    /// As [`Client::show`].
    pub fn leave(&mut self) -> Result<()> {
        match self.done(&Request::Leave) {
            // Its process may be gone before the answer is: that is what was asked for.
            Err(e) if e.code() == Code::Closed => Ok(()),
            other => other,
        }
    }

    /// Hands the session a signed object: a revocation list, policy or eviction.
    ///
    /// # Errors
    /// As [`Client::show`].
    pub fn learn(&mut self, object: &[u8]) -> Result<()> {
        self.done(&Request::Learn { object: object.iter().map(|b| format!("{b:02x}")).collect() })
    }

    fn change(&mut self, request: &Request) -> Result<Change> {
        match self.ask(request, &[])? {
            Answer::Changed(change) => Ok(change),
            other => Err(self.surprised(&other)),
        }
    }

    fn done(&mut self, request: &Request) -> Result<()> {
        match self.ask(request, &[])? {
            Answer::Done => Ok(()),
            other => Err(self.surprised(&other)),
        }
    }

    fn ask(&mut self, request: &Request, body: &[u8]) -> Result<Answer> {
        let mut line = serde_json::to_vec(request).expect("requests are plain data");
        line.push(b'\n');
        line.extend_from_slice(body);
        let mut reply = String::new();
        let exchanged = self
            .stream
            .get_mut()
            .write_all(&line)
            .and_then(|()| self.stream.by_ref().take(LINE_BYTES_MAX).read_line(&mut reply));
        match exchanged {
            Ok(n) if n > 0 => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                return Err(Error::new(Code::TimedOut, format!("the session did not answer in {TIMEOUT:?}")));
            }
            _ => return Err(Error::new(Code::Closed, "the session ended before it answered")),
        }
        let reply: Reply = serde_json::from_str(&reply)
            .map_err(|e| Error::new(Code::System, format!("{}: not understood: {e}", self.path.display())))?;
        reply.into()
    }

    fn surprised(&self, answer: &Answer) -> Error {
        Error::new(Code::System, format!("{}: an answer to another question: {answer:?}", self.path.display()))
    }
}

/// A subscription at a running session.
#[derive(Debug)]
pub struct Listening {
    client: Client,
    missed: u64,
}

impl Listening {
    /// The next message, if one comes in time.
    ///
    /// # Errors
    /// Why the session brings no more, or [`Code::Closed`] if it went away.
    pub fn next_timeout(&mut self, timeout: Duration) -> Result<Option<Heard>> {
        let path = self.client.path.clone();
        let failed = |e: io::Error| Error::system(path.display(), &e);
        let stream = &mut self.client.stream;
        stream.get_ref().set_read_timeout(Some(timeout.max(Duration::from_millis(1)))).map_err(failed)?;
        match stream.fill_buf() {
            Ok([]) => return Err(Error::new(Code::Closed, "the session ended")),
            Ok(_) => {}
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => return Ok(None),
            Err(e) => return Err(failed(e)),
        }
        // It has begun to come: all of it does, or the session is gone.
        stream.get_ref().set_read_timeout(Some(TIMEOUT)).map_err(failed)?;
        let mut line = String::new();
        stream.by_ref().take(LINE_BYTES_MAX).read_line(&mut line).map_err(failed)?;
        let reply = serde_json::from_str(&line)
            .map_err(|e| Error::new(Code::System, format!("{}: not understood: {e}", path.display())))?;
        let mut heard = match reply {
            Reply::Heard(heard) => heard,
            other => return Result::<Answer>::from(other).and_then(|answer| Err(self.client.surprised(&answer))),
        };
        if heard.bytes > limits::MESSAGE_BYTES_MAX {
            return Err(Error::new(Code::System, format!("{}: a message of {} bytes", path.display(), heard.bytes)));
        }
        heard.payload = vec![0; heard.bytes];
        stream.read_exact(&mut heard.payload).map_err(failed)?;
        self.missed = heard.missed;
        Ok(Some(heard))
    }

    /// How many messages were missed, because they came faster than they were read.
    pub fn missed(&self) -> u64 {
        self.missed
    }
}

/// The longest change of a group that somebody waits for.
const TIMEOUT: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use sealcast_wire::CertHash;

    use super::super::{Handler, Server, Strength, socket_path};
    use super::*;
    use crate::session::Subscription;

    /// Notes what it is asked, and refuses evictions.
    #[derive(Default)]
    struct Noting(Mutex<Vec<(Request, Vec<u8>)>>);

    impl Handler for Noting {
        fn handle(&self, request: Request, bytes: Vec<u8>) -> Result<Answer> {
            self.0.lock().unwrap().push((request.clone(), bytes));
            match request {
                Request::Show => {
                    Ok(Answer::Show(Box::new(GroupInfo { group: "ward3".to_owned(), ..GroupInfo::default() })))
                }
                Request::Publish { .. } => Ok(Answer::Published { number: Some(7), others: Some(2), here: true }),
                Request::Evict { .. } => Err(Error::new(Code::DeniedEvict, "no right").with_hint("ask")),
                _ => Ok(Answer::Done),
            }
        }

        fn subscribe(&self, _: &str, _: bool) -> Result<Subscription> {
            Err(Error::new(Code::DeniedSubscribe, "no right"))
        }
    }

    #[test]
    fn rule_a7_a_running_session_answers_other_processes_of_its_user() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::at(folder.path());
        let path = socket_path(&home, &CertHash([1; 32]), "ward3");
        assert_ne!(path, socket_path(&home, &CertHash([1; 32]), "ward5"));
        assert!(Client::connect(&path).unwrap().is_none(), "nobody runs yet");

        let noting = Arc::new(Noting::default());
        let server = Server::open(&path, noting.clone()).unwrap();
        let mut client = Client::connect(&path).unwrap().unwrap();
        assert_eq!(client.show().unwrap().group, "ward3");
        let sent = client.publish("t", b"{\n}", Guarantee::Fifo).unwrap();
        assert_eq!(sent, Sent { number: Some(7), others: Some(2), here: true });
        let refused = client.evict("carol", "lost").unwrap_err();
        assert_eq!((refused.code(), refused.hint()), (Code::DeniedEvict, Some("ask")));
        client.learn(&[0x30, 0xff]).unwrap();
        let listening = Client::connect(&path).unwrap().unwrap().subscribe("t", false);
        assert_eq!(listening.unwrap_err().code(), Code::DeniedSubscribe);
        let asked = noting.0.lock().unwrap().clone();
        assert_eq!(
            asked[1],
            (Request::Publish { topic: "t".to_owned(), guarantee: Strength::Fifo, bytes: 3 }, b"{\n}".to_vec())
        );
        assert_eq!(asked[3].0, Request::Learn { object: "30ff".to_owned() });

        assert_eq!(running(&home).len(), 1);
        let second = Server::open(&path, noting.clone()).unwrap_err();
        assert_eq!(second.code(), Code::Duplicate, "one live process per certificate");
        drop(server);
        assert!(!path.exists() && running(&home).is_empty());
    }

    #[test]
    fn what_a_dead_process_left_behind_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = socket_path(&Home::at(folder.path()), &CertHash([2; 32]), "ward3");
        crate::config::private_folder(path.parent().unwrap()).unwrap();
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists() && Client::connect(&path).unwrap().is_none());
        let _server = Server::open(&path, Arc::new(Noting::default())).unwrap();
        assert!(Client::connect(&path).unwrap().is_some());
    }

    #[test]
    fn nonsense_is_answered_and_the_connection_ends() {
        let folder = tempfile::tempdir().unwrap();
        let path = socket_path(&Home::at(folder.path()), &CertHash([3; 32]), "ward3");
        let _server = Server::open(&path, Arc::new(Noting::default())).unwrap();
        for nonsense in ["\n", "{\"do\":\"dance\"}\n", "{\"do\":\"publish\",\"topic\":\"t\",\"bytes\":999999999999}\n"]
        {
            let mut stream = UnixStream::connect(&path).unwrap();
            stream.write_all(nonsense.as_bytes()).unwrap();
            let mut reply = String::new();
            stream.read_to_string(&mut reply).unwrap();
            assert!(reply.starts_with("{\"error\":{\"code\":"), "{nonsense:?}: {reply}");
        }
    }
}
