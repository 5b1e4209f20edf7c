//! Unregistered clients at the gateway, who have as many keys and sockets as they like; and somebody with one credential and many keys.

use super::*;

/// Four unregistered clients, two registered clients.
fn small() -> World {
    World::sized(&Sizes {
        connections: Connections { registered: 2, unregistered: 4, brokers: 1 },
        strangers_reading_bytes: limits::GATEWAY_UNREGISTERED_REQUEST_BYTES_MAX,
        ..Sizes::default()
    })
}

fn registered(holder: &str) -> ClientStatus {
    ClientStatus::Registered(Holder::new((holder.into(), b"serial".to_vec())))
}

#[test]
fn rule_g8_strangers_who_fill_the_door_keep_out_strangers_alone() {
    let world = small();
    (1..=3).for_each(|seed| world.knows(seed, registered("ann")));
    world.knows(9, ClientStatus::Broker);
    let mut registered = [world.open(1), world.open(2)];
    // They say hello, or nothing at all, and stay for ever.
    let mut silent: Vec<Channel> = (20..24).map(|seed| world.open(seed)).collect();
    let mute: Vec<TcpStream> = (0..40).map(|_| TcpStream::connect(world.address).expect("it connects")).collect();
    // Those that come faster than others leave are not let in.
    let gone = || world.drops.of(Reason::Connections) + world.drops.of(Reason::Descriptors);
    until("the oldest of them gave way", || gone() >= 40);
    assert!(silent.iter_mut().all(|it| it.hear().is_err()));
    let mut newcomer = world.open(30);
    let mut broker = world.open(9);
    for channel in registered.iter_mut().chain([&mut newcomer, &mut broker]) {
        assert_eq!(channel.ask(Query::Status).expect("an answer"), Answer::No(Why::Nothing));
    }
    // Whom there is no place for waits with the unregistered clients; one that leaves makes room.
    let third = world.open(3);
    assert_eq!(world.gateway.clients(), 5);
    drop((registered, third));
    until("they have left", || world.gateway.clients() == 2);
    let _stays = world.open(3);
    let _more: Vec<Channel> = (40..48).map(|seed| world.open(seed)).collect();
    assert!(world.gateway.is_here(&client(3)) && world.gateway.is_here(&client(9)));
    drop(mute);
}

#[test]
fn rule_g8_messages_that_strangers_announce_hold_up_nobody_registered() {
    let world = small();
    world.knows(1, registered("ann"));
    let announce = |seed: u8, bytes: usize| {
        let mut channel = world.open(seed);
        channel.write(&u32::try_from(bytes).expect("it is small").to_be_bytes()).expect("it is sent");
        channel
    };
    // All that unregistered clients may be sending at once is announced, and never sent.
    let _boasters = [announce(20, limits::GATEWAY_UNREGISTERED_REQUEST_BYTES_MAX), announce(21, 1 << 20)];
    assert!(announce(22, limits::GATEWAY_UNREGISTERED_REQUEST_BYTES_MAX + 1).hear().is_err());
    world.dropped(Reason::Long);
    let mut honest = world.open(1);
    let longest = vec![1; limits::BATCH_BYTES_MAX];
    honest.say(&Request::Submit(longest.clone())).expect("it is sent");
    until("the longest batch is here", || *lock(&world.counter.batches) == [(client(1), Bytes::from(longest.clone()))]);
}

#[test]
fn rule_g8_messages_that_the_clients_of_one_holder_announce_hold_up_no_other() {
    let world = World::new();
    // Together they may announce all that registered clients may be sending at once.
    let many = u8::try_from(limits::GATEWAY_READING_BYTES_MAX / limits::BATCH_BYTES_MAX).expect("few");
    let announce = |seed: u8| {
        let mut channel = world.open(seed);
        let length = u32::try_from(limits::BATCH_BYTES_MAX).expect("it is small");
        channel.write(&length.to_be_bytes()).expect("it is sent");
        channel
    };
    (20..20 + many).for_each(|seed| world.knows(seed, registered("mallory")));
    let _boasters: Vec<Channel> = (20..20 + many).map(announce).collect();
    world.knows(1, registered("ann"));
    let mut honest = world.open(1);
    let longest = vec![1; limits::BATCH_BYTES_MAX];
    honest.say(&Request::Submit(longest)).expect("it is sent");
    until("the longest batch is here", || lock(&world.counter.batches).len() == 1);
    assert_eq!(world.drops.of(Reason::Stalled), 0, "and did not wait until they were given up");
}

#[test]
fn rule_g8_before_its_hello_nobody_announces_much() {
    let world = small();
    let mut boaster = world.connect(20);
    boaster.write(&u32::try_from(limits::GATEWAY_HELLO_BYTES_MAX + 1).expect("small").to_be_bytes()).expect("sent");
    assert!(boaster.hear().is_err());
    world.dropped(Reason::Long);
}

#[test]
fn rule_g8_strangers_questions_hold_up_neither_answers_nor_welcomes() {
    let world = small();
    world.knows(1, registered("ann"));
    world.counter.thinks.store(true, Ordering::Release);
    let mut unregistered: Vec<Channel> = (20..23).map(|seed| world.open(seed)).collect();
    for id in 0..=limits::QUERIES_UNREGISTERED_MAX as u64 {
        let ask = Request::Query { id, query: Query::Status };
        unregistered.iter_mut().for_each(|it| it.say(&ask).expect("it is sent"));
    }
    until("each has one too many", || world.drops.of(Reason::Questions) == 3);
    let mut honest = world.open(1);
    assert_eq!(honest.ask(Query::Status).expect("an answer"), Answer::No(Why::Nothing));
    let mut last = world.open(23);
    // Whoever registers is an unregistered client no longer, on the same channel.
    world.knows(23, registered("ann"));
    assert_eq!(last.ask(Query::Status).expect("an answer"), Answer::No(Why::Nothing));
    let longest = Request::Submit(vec![1; limits::BATCH_BYTES_MAX]);
    last.say(&longest).expect("it is sent");
    until("the longest batch is here", || lock(&world.counter.batches).len() == 1);
}

#[test]
fn rule_g8_an_unregistered_client_that_asks_too_much_again_and_again_loses_its_channel() {
    let world = small();
    world.knows(1, registered("ann"));
    world.counter.thinks.store(true, Ordering::Release);
    let most = limits::QUERIES_UNREGISTERED_MAX as u64 + u64::from(limits::QUERY_STRIKES_MAX);
    let ask = |channel: &mut Channel, queries: std::ops::Range<u64>| {
        for id in queries {
            channel.say(&Request::Query { id, query: Query::Status }).expect("it is sent");
        }
    };
    let mut greedy = world.open(20);
    ask(&mut greedy, 0..most);
    let strikes = u64::from(limits::QUERY_STRIKES_MAX);
    until("it has all its strikes", || world.drops.of(Reason::Questions) == strikes);
    assert!(world.gateway.is_here(&client(20)) && world.drops.of(Reason::Strikes) == 0);
    ask(&mut greedy, most..most + 1);
    world.dropped(Reason::Strikes);
    until("it has left", || !world.gateway.is_here(&client(20)));

    // A registered client is told that the broker is busy, and stays.
    world.counter.thinks.store(false, Ordering::Release);
    let mut registered = world.open(1);
    for _ in 0..2 * most {
        assert_eq!(registered.ask(Query::Status).expect("an answer"), Answer::No(Why::Nothing));
    }
    assert_eq!(world.drops.of(Reason::Strikes), 1);
}

#[test]
fn rule_g8_an_unregistered_client_gets_no_strikes_for_what_others_ask() {
    let world = World::sized(&Sizes { strangers_questions: 2, ..Sizes::default() });
    world.counter.thinks.store(true, Ordering::Release);
    let ask = |channel: &mut Channel, id| {
        channel.say(&Request::Query { id, query: Query::Status }).expect("it is sent");
    };
    // Somebody takes all queries that unregistered clients may have open, and no more than it may itself.
    let mut greedy = world.open(20);
    (0..2).for_each(|id| ask(&mut greedy, id));
    // They are taken in once another one finds no room.
    ask(&mut greedy, 2);
    assert_eq!(greedy.hear().expect("an answer"), Reply::Answer { id: 2, answer: Answer::No(Why::Busy) });
    let mut innocent = world.open(21);
    for id in 0..=u64::from(limits::QUERY_STRIKES_MAX) {
        ask(&mut innocent, id);
        assert_eq!(innocent.hear().expect("an answer"), Reply::Answer { id, answer: Answer::No(Why::Busy) });
    }
    world.counter.thinks.store(false, Ordering::Release);
    let innocent = std::cell::RefCell::new(innocent);
    let answer = || innocent.borrow_mut().ask(Query::Status).expect("an answer");
    until("there is room for its questions", || answer() == Answer::No(Why::Nothing));
    assert_eq!(world.drops.of(Reason::Strikes), 0);
}

#[test]
fn rule_g7_at_the_limit_of_descriptors_new_connections_are_closed_and_others_go_on() {
    let world = World::sized(&Sizes {
        connections: Connections { registered: 1, unregistered: 1, brokers: 0 },
        ..Sizes::default()
    });
    world.knows(1, registered("ann"));
    let mut honest = world.open(1);
    // Connections that lose their place are closed soon; those that come faster are not let in.
    until("some are turned away", || {
        let many: Vec<_> = (0..64).map(|_| TcpStream::connect(world.address)).collect();
        drop(many);
        world.drops.of(Reason::Descriptors) > 0
    });
    assert_eq!(honest.ask(Query::Status).expect("an answer"), Answer::No(Why::Nothing));
    let open = || Channel::open(world.address, key(200).public_bytes(), key(20), CLUSTER, TIMEOUT);
    until("somebody gets in again", || open().is_ok());
}
