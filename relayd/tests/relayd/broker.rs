//! A small MQTT 5 broker: as much as tests need, without files and options.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::BytesMut;
use rumqttc::v5::mqttbytes::v5::{
    ConnAck, ConnAckProperties, ConnectReturnCode, Packet, PingResp, PubAck, Publish, SubAck, SubscribeReasonCode,
};
use rumqttc::v5::mqttbytes::{Error, QoS};
use rumqttc::v5::{Client, Event, MqttOptions};

use crate::process::nobody;

/// Dropping it ends all connections.
pub(crate) struct Broker {
    at: SocketAddr,
    state: Arc<Mutex<State>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct State {
    is_over: bool,
    sockets: Vec<TcpStream>,
    subscribers: Vec<(String, TcpStream)>,
    published: Vec<Publish>,
    /// What connections send, all of it.
    raw: Vec<u8>,
    packet_bytes_max: Option<u32>,
}

impl Broker {
    pub(crate) fn start() -> Broker {
        Broker::start_at(nobody(), None)
    }

    pub(crate) fn start_at(at: SocketAddr, packet_bytes_max: Option<u32>) -> Broker {
        let listener = TcpListener::bind(at).expect("a free port");
        let state = Arc::new(Mutex::new(State { packet_bytes_max, ..State::default() }));
        let shared = state.clone();
        let thread = std::thread::spawn(move || {
            for socket in listener.incoming().map_while(Result::ok) {
                let mut state = shared.lock().unwrap();
                if state.is_over {
                    return;
                }
                state.sockets.push(socket.try_clone().expect("a descriptor"));
                let shared = shared.clone();
                std::thread::spawn(move || serve(socket, &shared));
            }
        });
        Broker { at, state, thread: Some(thread) }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.at
    }

    pub(crate) fn published(&self) -> Vec<Publish> {
        self.state.lock().unwrap().published.clone()
    }

    pub(crate) fn raw(&self) -> Vec<u8> {
        self.state.lock().unwrap().raw.clone()
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let mut state = self.state.lock().unwrap();
        state.is_over = true;
        state.sockets.drain(..).for_each(|it| drop(it.shutdown(Shutdown::Both)));
        drop(state);
        let _ = TcpStream::connect(self.at);
        let _ = self.thread.take().expect("it was started").join();
    }
}

fn serve(mut socket: TcpStream, shared: &Mutex<State>) {
    let (mut bytes, mut part) = (BytesMut::new(), [0; 65_536]);
    loop {
        match Packet::read(&mut bytes, Some(1 << 20)) {
            Ok(packet) => {
                let mut state = shared.lock().unwrap();
                if state.is_over {
                    return;
                }
                if let Some(answer) = state.handle(packet, &socket) {
                    send(&mut socket, &answer);
                }
            }
            Err(Error::InsufficientBytes(_)) => match socket.read(&mut part) {
                Ok(n) if n > 0 => {
                    bytes.extend_from_slice(&part[..n]);
                    shared.lock().unwrap().raw.extend_from_slice(&part[..n]);
                }
                _ => return,
            },
            Err(_) => return drop(socket.shutdown(Shutdown::Both)),
        }
    }
}

impl State {
    fn handle(&mut self, packet: Packet, from: &TcpStream) -> Option<Packet> {
        match packet {
            Packet::Connect(..) => {
                let properties = self.packet_bytes_max.map(properties);
                Some(Packet::ConnAck(ConnAck { session_present: false, code: ConnectReturnCode::Success, properties }))
            }
            Packet::Subscribe(it) => {
                let socket = || from.try_clone().expect("a descriptor");
                let filters = it.filters.iter().map(|filter| (filter.path.clone(), socket()));
                self.subscribers.extend(filters);
                let return_codes = vec![SubscribeReasonCode::Success(QoS::AtMostOnce); it.filters.len()];
                Some(Packet::SubAck(SubAck { pkid: it.pkid, return_codes, properties: None }))
            }
            Packet::Publish(it) => {
                let topic = String::from_utf8_lossy(&it.topic).into_owned();
                let onwards = Publish::new(topic.clone(), QoS::AtMostOnce, it.payload.clone(), None);
                for (filter, socket) in &mut self.subscribers {
                    if filter.strip_suffix('#').map_or(*filter == topic, |levels| topic.starts_with(levels)) {
                        send(socket, &Packet::Publish(onwards.clone()));
                    }
                }
                let answer = (it.qos == QoS::AtLeastOnce).then(|| Packet::PubAck(PubAck::new(it.pkid, None)));
                self.published.push(it);
                answer
            }
            Packet::PingReq(_) => Some(Packet::PingResp(PingResp)),
            _ => None,
        }
    }
}

fn send(socket: &mut TcpStream, packet: &Packet) {
    let mut bytes = BytesMut::new();
    packet.write(&mut bytes, None).expect("it has a form");
    // A client that has left misses it.
    let _ = socket.write_all(&bytes);
}

fn properties(packet_bytes_max: u32) -> ConnAckProperties {
    ConnAckProperties {
        session_expiry_interval: None,
        receive_max: None,
        max_qos: None,
        retain_available: None,
        max_packet_size: Some(packet_bytes_max),
        assigned_client_identifier: None,
        topic_alias_max: None,
        reason_string: None,
        user_properties: vec![],
        wildcard_subscription_available: None,
        subscription_identifiers_available: None,
        shared_subscription_available: None,
        server_keep_alive: None,
        response_information: None,
        server_reference: None,
        authentication_method: None,
        authentication_data: None,
    }
}

/// What a subscriber hears: topics and payloads. It is subscribed when this returns.
pub(crate) fn subscribe(at: SocketAddr, filter: &str) -> Receiver<(String, Vec<u8>)> {
    let mut options = MqttOptions::new("subscriber", at.ip().to_string(), at.port());
    options.set_keep_alive(Duration::from_secs(5)).set_max_packet_size(Some(1 << 20));
    let (client, mut connection) = Client::new(options, 8);
    client.subscribe(filter, QoS::AtLeastOnce).expect("it is queued");
    let ((heard, hear), (subscribed, is_subscribed)) = (mpsc::channel(), mpsc::channel());
    // It ends with the broker, or with the test.
    std::thread::spawn(move || {
        let _client = client;
        for event in connection.iter().map_while(Result::ok) {
            let is_heard = match event {
                Event::Incoming(Packet::SubAck(_)) => subscribed.send(()).is_ok(),
                Event::Incoming(Packet::Publish(it)) => {
                    heard.send((String::from_utf8_lossy(&it.topic).into_owned(), it.payload.to_vec())).is_ok()
                }
                _ => true,
            };
            if !is_heard {
                return;
            }
        }
    });
    is_subscribed.recv_timeout(crate::process::TIMEOUT).expect("it is subscribed");
    hear
}
