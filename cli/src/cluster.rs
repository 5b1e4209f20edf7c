//! Which brokers a command means, and a client of them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sealcast::brokers::{self, BATCH_OPERATIONS, Brokers, ClientKey, Purpose, load_named};
use sealcast::code::Code;
use sealcast::config::{Home, KeptIdentity};
use sealcast::session::{Identity, Opening};
use sealcast::url::{Scheme, TransportAddress, Url};
use sealcast_broker::cluster_file::{ClusterFile, Mismatch};
use sealcast_broker::expression::ParseError;
use sealcast_broker::operation::Interest;
use sealcast_client::OrderStatus;
use sealcast_crypto::identity::{Attribute, Fingerprint};

use crate::commands::Env;
use crate::hint::Failure;
use crate::session::For;
use crate::target::{self, Target};
use crate::text::{date, instant, now};

/// A cluster of brokers.
pub(crate) struct Cluster {
    /// What its file says.
    pub(crate) file: Arc<ClusterFile>,
    /// Where it lies.
    pub(crate) path: PathBuf,
    /// Names it, and says who holds the keys.
    pub(crate) url: Url,
    pub(crate) timeout: Duration,
}

impl Cluster {
    /// Of `--cluster`, else of the target's URL.
    pub(crate) fn of(env: &Env<'_>, file: Option<&Path>) -> Result<Cluster, Failure> {
        let url = match file {
            Some(path) => Url::parse(&Url::of_cluster_file(path)).map_err(Failure::from),
            None => Target::of(env).map(|it| it.url),
        };
        let hint = "--cluster FILE, or --url quorum:FILE; 'sealcast brokers up -n 4' makes a cluster and a context";
        match url {
            Ok(url) => match Cluster::of_url(&url)? {
                Some(cluster) => Ok(cluster),
                None => Err(Failure::new(Code::NoUrl, format!("{url} names no brokers")).hint(hint)),
            },
            Err(e) if e.is(Code::NoUrl) => Err(Failure::new(Code::NoUrl, "which brokers?").hint(hint)),
            Err(e) => Err(e),
        }
    }

    /// Of a URL, if it goes through brokers.
    pub(crate) fn of_url(url: &Url) -> Result<Option<Cluster>, Failure> {
        let TransportAddress::Quorum(path) = &url.address else { return Ok(None) };
        let file = Arc::new(load_named(path, &url.options)?);
        Ok(Some(Cluster { file, path: path.clone(), url: url.clone(), timeout: url.options.wait }))
    }

    /// Whether the URL says which cluster it is, or who signs its file.
    pub(crate) fn is_named(&self) -> bool {
        self.url.options.pin.is_some() || self.url.options.authority.is_some()
    }

    /// The same, if brokers see publications: with keys=contributory they see what members sealed, and a session does.
    pub(crate) fn of_publications(url: &Url) -> Result<Option<Cluster>, Failure> {
        if matches!(url.keys, Scheme::Contributory | Scheme::Mls) { Ok(None) } else { Cluster::of_url(url) }
    }

    /// A session of the chosen identity's client, or of nobody's in particular, about to be opened.
    pub(crate) fn opening(&self, env: &Env<'_>, wanted: For) -> Result<Opening, Failure> {
        let me = self.me(env)?;
        self.opening_as(env, me, wanted)
    }

    /// The same for somebody, or for nobody in particular.
    pub(crate) fn opening_as(
        &self,
        env: &Env<'_>,
        me: Option<Arc<KeptIdentity>>,
        wanted: For,
    ) -> Result<Opening, Failure> {
        let purpose = if wanted == For::Subscription { Purpose::Subscribe } else { Purpose::Call };
        let mut opening = sealcast::open(&self.url.to_string()).home(env.home.clone()).as_client(purpose);
        if let Some(me) = me {
            self.warn_of_unregistered(env, &me);
            self.warn_of_past(env, &me);
            opening = opening.identity(Identity::Kept(me));
        }
        if self.url.keys == Scheme::Plain {
            env.output.warn("keys=plain: the brokers can read what is published");
        }
        Ok(opening.timeout(self.timeout))
    }

    /// A client for nobody in particular, whose channels open in the background.
    pub(crate) fn open(&self, env: &Env<'_>) -> Result<Brokers, Failure> {
        Ok(self.opening_as(env, None, For::Message)?.wait()?.into_brokers()?)
    }

    /// What this cluster's issuers said and is over.
    fn warn_of_past(&self, env: &Env<'_>, me: &KeptIdentity) {
        for it in me.vouchers.iter().filter(|it| it.not_after() < now()) {
            // What is said to other brokers is none of this cluster's business.
            let Some(issuer) = it.issuer(&self.file.genesis) else { continue };
            let end = date(it.not_after());
            env.output.warn(format!("what {issuer} says of you ended {end}: ask for it anew, and reg --with it"));
        }
    }

    /// E11: which brokers are the right ones, the file alone says, and whoever sealed for the wrong ones was read.
    fn warn_of_unregistered(&self, env: &Env<'_>, me: &KeptIdentity) {
        if self.is_named() {
            return;
        }
        // Whoever has no authority trusts none.
        let own = me.membership.as_ref().map(|it| it.anchor.fingerprint());
        let who = match self.file.signed_by(own.unwrap_or(Fingerprint([0; 32]))) {
            Ok(()) => return,
            Err(Mismatch::Authority { found, .. }) if own.is_some() => {
                format!("is signed by {found}, not by your own authority")
            }
            Err(Mismatch::Authority { found, .. }) => format!("is signed by {found}, and you have no authority"),
            Err(_) => "is signed by no authority".to_owned(),
        };
        // A forged file has an id, too: what counts is that somebody else says the same.
        let (path, id) = (Home::shown(&self.path), hex::encode(self.file.cluster().0));
        let pin = &id[..PIN_DIGITS];
        env.output.warn(format!(
            "{path} {who}: compare its id {pin}… with the brokers' operator; pin= in the URL says that you did"
        ));
    }

    /// A client by a key that is registered, or an administrator's.
    fn start(&self, key: ClientKey) -> Result<Brokers, Failure> {
        let (cluster, registrations, keys) = (self.file.clone(), Vec::new(), self.url.keys);
        let (timeout, batch_operations, accuse) = (self.timeout, BATCH_OPERATIONS, true);
        Ok(Brokers::open(brokers::Opening { cluster, key, registrations, keys, timeout, batch_operations, accuse })?)
    }

    /// A client for each key with which the chosen identity has subscribed here; and how many more other processes have.
    pub(crate) fn open_subscribers(&self, env: &Env<'_>) -> Result<(Vec<Brokers>, usize), Failure> {
        let me = self.me(env)?.ok_or_else(|| target::no_identity(env))?;
        self.warn_of_unregistered(env, &me);
        let (keys, in_use) = ClientKey::kept(&env.home, &self.file.cluster(), &me.holder(), Purpose::Subscribe)?;
        // Who has something standing is registered.
        let clients = keys.into_iter().map(|key| self.start(key)).collect::<Result<_, _>>()?;
        Ok((clients, in_use))
    }

    /// A client that is told what concerns all, as the policy in force: by the chosen identity's key if it is an administrator's, or that
    /// of another identity of this user if none was named; else by its certificate.
    pub(crate) fn open_known(&self, env: &Env<'_>) -> Result<Brokers, Failure> {
        match self.open_administrator(env)? {
            Some(brokers) => {
                if let Some(me) = self.me(env)? {
                    self.warn_of_unregistered(env, &me);
                }
                brokers.ready().wait()?;
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
        Ok(Some(self.start(ClientKey::own(key))?))
    }

    /// A client of it that the brokers know.
    pub(crate) fn open_registered(&self, env: &Env<'_>) -> Result<Brokers, Failure> {
        let brokers = self.opening(env, For::Message)?.wait()?.into_brokers()?;
        self.registered(env, &brokers)?;
        Ok(brokers)
    }

    /// Waits until a client is known to the brokers, and warns of the end of its certificate.
    pub(crate) fn registered(&self, env: &Env<'_>, brokers: &Brokers) -> Result<OrderStatus, Failure> {
        let order_status = brokers.registered().wait()?;
        self.warn_of_end(env, brokers);
        Ok(order_status)
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
        Ok(self.me(env)?.map(|it| it.attributes(now())).unwrap_or_default())
    }

    /// The chosen identity, if somebody vouches for it.
    fn me(&self, env: &Env<'_>) -> Result<Option<Arc<KeptIdentity>>, Failure> {
        let Some(name) = target::identity(env)? else { return Ok(None) };
        let me = KeptIdentity::load(&env.home, &name)?;
        Ok(Some(me).filter(|it| it.membership.is_some() || !it.vouchers.is_empty()).map(Arc::new))
    }
}

/// A condition on topics and their values, as subscriptions and advertisements have it.
pub(crate) fn interest(text: &str) -> Result<Interest, Failure> {
    text.parse().map_err(|e: ParseError| {
        let what = format!("'{text}':{}: expected {}, found {}", e.location, e.expected, e.found);
        let usual = || "'news/#', or 'price = 105 and region = eu'".to_owned();
        Failure::new(Code::BadValue, what).hint(e.hint.unwrap_or_else(usual))
    })
}

/// The URL with the cluster file elsewhere, and with the pin of that file if it names none yet and no authority.
pub(crate) fn moved(url: &Url, path: &Path, file: &ClusterFile) -> String {
    let text = url.to_string();
    let options = text.split_once('?').map_or("", |(_, options)| options);
    let named = url.options.pin.is_some() || url.options.authority.is_some();
    let pin = (!named).then(|| format!("pin={}", &hex::encode(file.cluster().0)[..PIN_DIGITS]));
    let options: Vec<&str> =
        [Some(options), pin.as_deref()].into_iter().flatten().filter(|it| !it.is_empty()).collect();
    let mark = if options.is_empty() { "" } else { "?" };
    format!("{}{mark}{}", Url::of_cluster_file(path), options.join("&"))
}

/// Digits of a cluster's id that a URL is given: 128 bits.
pub(crate) const PIN_DIGITS: usize = 32;
