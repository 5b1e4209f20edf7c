//! Publishing through brokers: each message, or several together, once it has its place.

use std::collections::BTreeSet;
use std::time::Duration;

use sealcast::brokers::{Brokers, Outgoing, Published};
use sealcast::code::Code;
use sealcast::error::Error;
use sealcast::url::Scheme;
use sealcast_broker::access::{Access, Name, Vocabulary};
use sealcast_broker::expression::ParseError;
use sealcast_broker::operation::{Act, Execute, Header};
use sealcast_crypto::identity::check_topic;
use serde_json::json;

use super::Pub;
use crate::cluster::Cluster;
use crate::commands::policy::Denial;
use crate::commands::{self, Env, receipt};
use crate::format::{safe, typed};
use crate::hint::{Failure, nearest};

/// What brokers are to publish with each message, where they see it.
pub(super) type ToBrokers<'a> = Option<(&'a Cluster, Outgoing)>;

/// A client of brokers that publishes.
pub(super) struct Client<'a> {
    cluster: &'a Cluster,
    brokers: Brokers,
    outgoing: Outgoing,
}

impl<'a> Client<'a> {
    /// Once the brokers know it.
    pub(super) fn new(
        env: &Env<'_>,
        cluster: &'a Cluster,
        brokers: Brokers,
        outgoing: Outgoing,
    ) -> Result<Self, Failure> {
        cluster.registered(env, &brokers)?;
        outgoing.access.iter().try_for_each(|access| warn_of_unknown(env, cluster, &brokers, access))?;
        Ok(Client { cluster, brokers, outgoing })
    }

    /// One message, or several together, once they have their place.
    pub(super) fn publish(&mut self, env: &Env<'_>, asked: &Pub, mut bodies: Vec<Vec<u8>>) -> Result<(), Failure> {
        let more = bodies.split_off(1);
        self.outgoing.body = bodies.remove(0);
        let Client { cluster, brokers, outgoing } = self;
        let more: Vec<&[u8]> = more.iter().map(Vec::as_slice).collect();
        let published = brokers
            .publish_together(outgoing, &more)
            .wait()
            .map_err(|e| denied(env, cluster, brokers, &outgoing.headers, e))?;
        let mut signed = None;
        if let Some(path) = &asked.receipt {
            let receipt = brokers.receipt(published.height, published.number).wait()?;
            receipt::save(path, &receipt, &cluster.file, asked.force)?;
            signed = Some(receipt.signatures.len());
        }
        asked.published(env, cluster, outgoing, &more, &published, signed)?;
        // Lines may come for days: what is found meanwhile is kept and told at once.
        commands::brokers::keep(env, &cluster.file.cluster(), &brokers.evidence())?;
        brokers.misled().map_or(Ok(()), |why| Err(why.into()))
    }

    /// Ends it, and says what it has found out about brokers.
    pub(super) fn finish(self, env: &Env<'_>, done: Result<(), Failure>) -> Result<(), Failure> {
        if done.is_ok()
            && let Some(why) = self.brokers.too_few_holders(HOLDERS_TIMEOUT).wait()
        {
            env.output.warn(why.message());
        }
        commands::brokers::keep(env, &self.cluster.file.cluster(), &self.brokers.evidence())?;
        let misled = self.brokers.misled();
        self.brokers.close();
        misled.map_or(done, |why| Err(why.into()))
    }
}

impl Pub {
    /// What each message brings to brokers beside itself.
    pub(super) fn outgoing(&self, cluster: &Cluster) -> Result<Outgoing, Failure> {
        self.extra.check_clear(self.allow.is_some())?;
        if let Some(path) = &self.receipt {
            receipt::check_free(path, self.force)?;
        }
        let access = self.allow.as_ref().map(|text| condition(cluster, text)).transpose()?;
        if let Some(value) = &self.value {
            check_topic(value).map_err(|e| Failure::new(Code::BadValue, format!("--value '{value}': {e}")))?;
        }
        let headers = self.extra.headers(Header { topic: self.topic.clone(), value: self.value.clone() })?;
        let (associated, execute) = (self.extra.associated(), self.extra.execute()?);
        if self.together.is_some_and(|it| it > 1) && cluster.url.keys == Scheme::Plain {
            let failure = Failure::new(Code::BadPair, "--together: in clear nothing is sealed together");
            return Err(failure.hint("keys=threshold in the URL seals; or leave out --together"));
        }
        Ok(Outgoing { headers, associated, access, execute, body: Vec::new() })
    }

    /// `number 1285  signed by 3 of 4  sealed for exchange:desk = fx  receipt r.json`; what is in clear is said, and for whom.
    fn published(
        &self,
        env: &Env<'_>,
        cluster: &Cluster,
        outgoing: &Outgoing,
        more: &[&[u8]],
        it: &Published,
        signed: Option<usize>,
    ) -> Result<(), Failure> {
        let number = it.places.first().copied().unwrap_or(0);
        let allow = outgoing.access.as_ref().map(ToString::to_string);
        let sealed = cluster.url.keys == Scheme::Threshold;
        let sum = match &outgoing.execute {
            Execute::Increment { .. } => it.answer.first_chunk::<8>().map(|sum| i64::from_be_bytes(*sum)),
            _ => None,
        };
        let (messages, more) = (1 + more.len(), more.iter().map(|it| it.len()).sum::<usize>());
        env.output.object(&json!({
            "topic": self.topic, "value": self.value, "messages": messages, "bytes": outgoing.body.len() + more, "number": number, "through": "brokers",
            "height": it.height, "sn": it.sn, "sealed": sealed, "allow": allow, "signed": signed, "receipt": self.receipt,
            "numbers": it.places, "sum": sum, "key_in_clear": self.extra.key_in_clear(),
        }))?;
        let mut line = format!("number {number}");
        if messages > 1 {
            line += &format!("  {messages} lines together");
        }
        if let Some(sum) = sum {
            line += &format!("  sum {sum}");
        }
        if let Some(signed) = signed {
            line += &format!("  signed by {signed} of {}", cluster.file.brokers());
        }
        line += match (sealed, &allow) {
            (true, Some(allow)) => format!("  sealed for {allow}"),
            (true, None) => "  sealed".to_owned(),
            (false, Some(allow)) => format!("  in clear, for {allow}"),
            (false, None) => "  in clear".to_owned(),
        }
        .as_str();
        if let Some(key) = self.extra.key_in_clear() {
            line +=
                &format!("  value of {} in clear, for all whom the policy lets read {}", safe(key), safe(&self.topic));
        }
        if let Some(path) = &self.receipt {
            line += &format!("  receipt {}", path.display());
        }
        env.output.line(line)
    }
}

/// Who may not publish where, by which rule; another error as it is.
fn denied(env: &Env<'_>, cluster: &Cluster, brokers: &Brokers, headers: &[Header], why: Error) -> Failure {
    if why.code() != Code::DeniedPublish {
        return why.into();
    }
    let topics: Vec<String> = headers.iter().map(|it| safe(&it.topic)).collect();
    let arguments: Vec<String> = headers.iter().map(|it| typed(&it.topic)).collect();
    // The policy may have changed since, or be told too late: then the brokers' word must do.
    match Denial::of(env, cluster, brokers, Act::Publish, headers) {
        Ok(Some(by)) => {
            let what = format!("{} may not publish on {}: {by}", by.who, topics.join(" and "));
            Failure::new(Code::DeniedPublish, what)
        }
        _ => Failure::new(
            Code::DeniedPublish,
            format!("the policy does not let you publish on {}", topics.join(" and ")),
        ),
    }
    .hint(format!("sealcast policy why --publish --topic {}", arguments.join(" --topic ")))
}

/// A condition whose issuers the cluster knows: others allow nobody.
fn condition(cluster: &Cluster, text: &str) -> Result<Access, Failure> {
    let access: Access = text.parse().map_err(|e: ParseError| {
        let failure =
            Failure::new(Code::BadValue, format!("--allow:{}: expected {}, found {}", e.location, e.expected, e.found));
        match e.hint {
            Some(hint) => failure.hint(hint),
            None => failure.hint("--allow 'exchange:desk = fx and exchange:clearance >= 3'"),
        }
    })?;
    let issuers = &cluster.file.genesis.issuers;
    if let Some(it) = access.atoms().into_iter().find(|it| !issuers.contains_key(it.name.issuer())) {
        let failure = format!("--allow: these brokers know no issuer '{}': nobody could read it", it.name.issuer());
        let known: Vec<&str> = issuers.keys().map(String::as_str).collect();
        let near = nearest(it.name.issuer(), known.iter().copied());
        return Err(Failure::new(Code::BadValue, failure).hint(match near {
            Some(better) => format!("did you mean '{better}'?"),
            None => format!("its issuers are {}", known.join(", ")),
        }));
    }
    Ok(access)
}

/// Warns of attributes that neither the policy in force nor the publisher's own certificate names: a misspelt one allows
/// nobody, which only readers would see. Whoever has nothing to compare with is told nothing, and nobody waits long.
fn warn_of_unknown(env: &Env<'_>, cluster: &Cluster, brokers: &Brokers, access: &Access) -> Result<(), Failure> {
    let asked: BTreeSet<&Name> = access.atoms().into_iter().map(|it| &it.name).collect();
    let own = cluster.attributes(env)?;
    let mut known: Vec<Name> = own.iter().filter_map(|it| Name::new(&it.issuer, &it.key)).collect();
    if asked.iter().all(|name| known.contains(name)) {
        return Ok(());
    }
    let Ok((number, policy)) = brokers.policy(POLICY_TIMEOUT).wait() else { return Ok(()) };
    known.extend(policy.rules.iter().flat_map(|rule| rule.access.atoms()).map(|it| it.name.clone()));
    let known = Vocabulary::new(known);
    for name in asked.into_iter().filter(|it| !known.contains(it) && (number > 0 || known.knows_issuer(it.issuer()))) {
        let near = known.nearest(name).map_or(String::new(), |near| format!("; did you mean {near}?"));
        env.output.warn(format!("--allow: neither the policy in force nor your certificate names {name}{near}"));
    }
    Ok(())
}

/// How long brokers are waited for that do not say whether they hold a share of the key.
const HOLDERS_TIMEOUT: Duration = Duration::from_millis(300);
/// How long the policy in force is waited for, to compare attributes with.
const POLICY_TIMEOUT: Duration = Duration::from_millis(300);
