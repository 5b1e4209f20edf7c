//! Which brokers a command means, and a client of them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sealcast::brokers::{
    Brokers, ClientKey, FRAME_OPERATIONS, Opening, Purpose, load, load_named, registration, vouched,
};
use sealcast::code::Code;
use sealcast::config::{Home, KeptIdentity};
use sealcast::url::{Scheme, Url, Way};
use sealcast_broker::cluster_file::{ClusterFile, Mismatch};
use sealcast_broker::expression::ParseError;
use sealcast_broker::operation::{Client, Interest, Registration};
use sealcast_client::Standing;
use sealcast_crypto::hash::sha256;
use sealcast_crypto::identity::{Attribute, Fingerprint, Identity};
use sealcast_wire::CertHash;

use crate::commands::Env;
use crate::hint::Failure;
use crate::target::{self, Target};
use crate::text::{date, instant, now};

/// A cluster of brokers.
pub(crate) struct Cluster {
    /// What its file says.
    pub(crate) file: Arc<ClusterFile>,
    /// Where it lies.
    pub(crate) path: PathBuf,
    pub(crate) keys: Scheme,
    pub(crate) patience: Duration,
    /// Whether the URL says which cluster it is, or who signs its file.
    pub(crate) named: bool,
}

/// Who a command acts as.
pub(crate) enum As {
    /// The chosen identity: the brokers shall know it.
    Member,
    /// The same, for subscriptions.
    Subscriber,
    /// Nobody in particular.
    Anybody,
}

impl Cluster {
    /// Of `--cluster`, else of the target's URL.
    pub(crate) fn of(env: &Env<'_>, file: Option<&Path>) -> Result<Cluster, Failure> {
        if let Some(path) = file {
            let patience = Duration::from_secs(10);
            let file = Arc::new(load(path)?);
            return Ok(Cluster { file, path: path.to_path_buf(), keys: Scheme::Threshold, patience, named: false });
        }
        let hint = "--cluster FILE, or --url quorum:FILE; «sealcast brokers up -n 4» makes a cluster and a context";
        match Target::of(env) {
            Ok(target) => match Cluster::of_url(&target.url)? {
                Some(cluster) => Ok(cluster),
                None => Err(Failure::new(Code::NoUrl, format!("{} names no brokers", target.url)).hint(hint)),
            },
            Err(e) if e.is(Code::NoUrl) => Err(Failure::new(Code::NoUrl, "which brokers?").hint(hint)),
            Err(e) => Err(e),
        }
    }

    /// Of a URL, if it goes through brokers.
    pub(crate) fn of_url(url: &Url) -> Result<Option<Cluster>, Failure> {
        let Way::Quorum(path) = &url.way else { return Ok(None) };
        let file = load_named(path, &url.options)?;
        let (keys, patience) = (url.keys, url.options.wait);
        let named = url.options.pin.is_some() || url.options.authority.is_some();
        Ok(Some(Cluster { file: Arc::new(file), path: path.clone(), keys, patience, named }))
    }

    /// The same, if brokers see publications: with keys=contributory they see what members sealed, and a session does.
    pub(crate) fn of_publications(url: &Url) -> Result<Option<Cluster>, Failure> {
        if url.keys == Scheme::Contributory { Ok(None) } else { Cluster::of_url(url) }
    }

    /// A client of it, whose channels open in the background.
    pub(crate) fn open(&self, env: &Env<'_>, who: &As) -> Result<Brokers, Failure> {
        let me = match who {
            As::Member | As::Subscriber => self.me(env)?,
            As::Anybody => None,
        };
        let purpose = if matches!(who, As::Subscriber) { Purpose::Subscribe } else { Purpose::Call };
        self.open_as(env, me.as_ref(), purpose)
    }

    /// A client of it for somebody, or for nobody in particular.
    pub(crate) fn open_as(&self, env: &Env<'_>, me: Option<&Me>, purpose: Purpose) -> Result<Brokers, Failure> {
        let (key, registrations) = match me {
            Some(me) => {
                self.warn_of_strangers(env, me);
                let key = ClientKey::of(&env.home, &self.file.cluster(), &me.holder(), purpose)?;
                let registrations = self.registrations(env, me, &key.client());
                (key, registrations)
            }
            None => (ClientKey::fresh()?, Vec::new()),
        };
        if self.keys == Scheme::Plain {
            env.output.warn("keys=plain: the brokers can read what is published");
        }
        self.start(key, registrations)
    }

    /// What makes somebody's client known here.
    fn registrations(&self, env: &Env<'_>, me: &Me, client: &Client) -> Vec<Registration> {
        let mut all = Vec::new();
        if let Some(identity) = &me.identity {
            all.extend(registration(&self.file, identity, client, false));
        }
        for it in &me.kept.vouchers {
            // What is said to other brokers is none of this cluster's business.
            let Some(registration) = vouched(&self.file, it, &me.kept.secret.signing_key(), client) else { continue };
            if it.not_after() < now() {
                let (issuer, end) = (it.issuer(&self.file.genesis).unwrap_or_default(), date(it.not_after()));
                env.output.warn(format!("what {issuer} says of you ended {end}: ask for it anew, and reg --with it"));
            } else {
                all.push(registration);
            }
        }
        if all.is_empty()
            && let Some(identity) = &me.identity
        {
            let (who, of) = (&identity.certificate().name, identity.anchor().certificate().name());
            env.output.warn(format!("{who} has its certificate of {of}, which is no issuer of these brokers"));
        }
        all
    }

    /// E11: which brokers are the right ones, the file alone says, and whoever sealed for the wrong ones was read.
    fn warn_of_strangers(&self, env: &Env<'_>, me: &Me) {
        if self.named {
            return;
        }
        // Whoever has no authority trusts none.
        let own = me.identity.as_ref().map(Identity::authority);
        let who = match self.file.signed_by(own.unwrap_or(Fingerprint([0; 32]))) {
            Ok(()) => return,
            Err(Mismatch::Authority { found, .. }) if own.is_some() => {
                format!("is signed by {found}, not by your own authority")
            }
            Err(Mismatch::Authority { found, .. }) => format!("is signed by {found}, and you have no authority"),
            Err(_) => "is signed by no authority".to_owned(),
        };
        // A forged file has an id, too: what counts is that somebody else says the same.
        let (path, id) = (Home::shown(&self.path), hex(&self.file.cluster().0));
        let pin = &id[..PIN_DIGITS];
        env.output.warn(format!(
            "{path} {who}: compare its id {pin}… with whoever runs the brokers; pin= in the URL says that you did"
        ));
    }

    fn start(&self, key: ClientKey, registrations: Vec<Registration>) -> Result<Brokers, Failure> {
        let (cluster, keys, patience) = (self.file.clone(), self.keys, self.patience);
        let frame_operations = FRAME_OPERATIONS;
        let accuse = true;
        Ok(Brokers::open(Opening { cluster, key, registrations, keys, patience, frame_operations, accuse })?)
    }

    /// A client for each key with which the chosen identity has subscribed here; and how many more other processes have.
    pub(crate) fn open_subscribers(&self, env: &Env<'_>) -> Result<(Vec<Brokers>, usize), Failure> {
        let me = self.me(env)?.ok_or_else(|| target::no_identity(env))?;
        self.warn_of_strangers(env, &me);
        let (keys, in_use) = ClientKey::kept(&env.home, &self.file.cluster(), &me.holder(), Purpose::Subscribe)?;
        // Who has something standing is registered.
        let clients = keys.into_iter().map(|key| self.start(key, Vec::new())).collect::<Result<_, _>>()?;
        Ok((clients, in_use))
    }

    /// A client that is told what concerns all, as the policy in force: by the chosen identity's key if it is an administrator's, or that
    /// of another identity of this user if none was named; else by its certificate.
    pub(crate) fn open_known(&self, env: &Env<'_>) -> Result<Brokers, Failure> {
        match self.open_administrator(env)? {
            Some(brokers) => {
                if let Some(me) = self.me(env)? {
                    self.warn_of_strangers(env, &me);
                }
                brokers.ready()?;
                Ok(brokers)
            }
            None => self.open_registered(env),
        }
    }

    /// A client by an administrator's key: that of the chosen identity, or of another one of this user if none was named.
    /// `None` if none of them is an administrator's.
    pub(crate) fn open_administrator(&self, env: &Env<'_>) -> Result<Option<Brokers>, Failure> {
        let chosen = target::identity(env)?;
        let others = env.home.identities().into_iter().filter(|_| env.global.id.is_none());
        let administrators = &self.file.genesis.administrators;
        let administers = |name: String| {
            // A damaged identity of somebody else's is none of this command's business.
            let key = KeptIdentity::load(&env.home, &name).ok()?.secret.origin_key()?;
            administrators.iter().any(|it| *it.as_bytes() == key.public_bytes()).then_some((name, key))
        };
        let Some((name, key)) = chosen.into_iter().chain(others).find_map(administers) else { return Ok(None) };
        env.output.detail(format!("asked as the administrator {name}"));
        Ok(Some(self.start(ClientKey::own(key), Vec::new())?))
    }

    /// A client of it that the brokers know.
    pub(crate) fn open_registered(&self, env: &Env<'_>) -> Result<Brokers, Failure> {
        let brokers = self.open(env, &As::Member)?;
        self.registered(env, &brokers)?;
        Ok(brokers)
    }

    /// Waits until a client is known to the brokers, and warns of the end of its certificate.
    pub(crate) fn registered(&self, env: &Env<'_>, brokers: &Brokers) -> Result<Standing, Failure> {
        let standing = brokers.registered()?;
        self.warn_of_end(env, brokers);
        Ok(standing)
    }

    /// Warns if the client's certificate ends soon; whether it does.
    pub(crate) fn warn_of_end(&self, env: &Env<'_>, brokers: &Brokers) -> bool {
        let Some(end) = brokers.ends_soon() else { return false };
        let (at, name) = (instant(end), &self.file.genesis.name);
        env.output.warn(format!("your certificate ends {at}, and then what stands for you at {name}: have it renewed"));
        true
    }

    /// What is said of the chosen identity; nothing without one.
    pub(crate) fn attributes(&self, env: &Env<'_>) -> Result<Vec<Attribute>, Failure> {
        Ok(self.me(env)?.map(|it| it.kept.attributes(now())).unwrap_or_default())
    }

    /// The chosen identity, if somebody vouches for it.
    fn me(&self, env: &Env<'_>) -> Result<Option<Me>, Failure> {
        let Some(name) = target::identity(env)? else { return Ok(None) };
        let me = Me::load(env, &name)?;
        Ok(Some(me).filter(|it| it.identity.is_some() || !it.kept.vouchers.is_empty()))
    }
}

/// Who a client of brokers is.
pub(crate) struct Me {
    /// With what others say of it.
    pub(crate) kept: KeptIdentity,
    /// With its certificate, if it has one.
    pub(crate) identity: Option<Identity>,
}

impl Me {
    /// An identity of this user.
    pub(crate) fn load(env: &Env<'_>, name: &str) -> Result<Me, Failure> {
        let kept = KeptIdentity::load(&env.home, name)?;
        let identity = kept.identity()?;
        Ok(Me { kept, identity })
    }

    /// By what its clients' keys are kept: its certificate, or the key that others vouch for.
    fn holder(&self) -> CertHash {
        let key = || CertHash(sha256(&self.kept.secret.public().signing.to_bytes()));
        self.identity.as_ref().map_or_else(key, |it| it.certificate().hash)
    }
}

/// A condition on topics and their values, as subscriptions and advertisements have it.
pub(crate) fn interest(text: &str) -> Result<Interest, Failure> {
    text.parse().map_err(|e: ParseError| {
        let what = format!("«{text}»:{}: expected {}, found {}", e.place, e.expected, e.found);
        let usual = || "'news/#', or 'price = 105 and region = eu'".to_owned();
        Failure::new(Code::BadValue, what).hint(e.hint.unwrap_or_else(usual))
    })
}

/// The URL with the cluster file elsewhere, and with the pin of that file if it names none yet and no authority.
pub(crate) fn moved(url: &Url, path: &Path, file: &ClusterFile) -> String {
    let text = url.to_string();
    let options = text.split_once('?').map_or("", |(_, options)| options);
    let named = url.options.pin.is_some() || url.options.authority.is_some();
    let pin = (!named).then(|| format!("pin={}", &hex(&file.cluster().0)[..PIN_DIGITS]));
    let options: Vec<&str> =
        [Some(options), pin.as_deref()].into_iter().flatten().filter(|it| !it.is_empty()).collect();
    let mark = if options.is_empty() { "" } else { "?" };
    format!("quorum:{}{mark}{}", path.display(), options.join("&"))
}

/// Digits of a cluster's id that a URL is given: 128 bits.
pub(crate) const PIN_DIGITS: usize = 32;

/// Lower case, two digits a byte.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Reads what [`hex`] wrote.
pub(crate) fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> = text.chars().map(|c| c.to_digit(16).map(|d| d as u8)).collect::<Option<_>>()?;
    digits.len().is_multiple_of(2).then(|| digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}
