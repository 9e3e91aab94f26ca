use crate::bench::*;
use crate::shows;
use azservicebus::primitives::service_bus_retry_policy::ServiceBusRetryPolicyExt;

shows!(
    a_session_keeps_its_state,
    "ServiceBusClient::accept_session_for_queue ServiceBusSessionReceiver::session_state \
     ServiceBusSessionReceiver::set_session_state ServiceBusSessionReceiver::dispose",
    [sessions],
    |bench| {
        let mut receiver = bench.client.accept_session_for_queue(&bench.queue, SESSION, Default::default()).await?;
        assert_eq!(receiver.session_id(), SESSION);
        receiver.set_session_state("kept".into()).await?;
        receiver.dispose().await?;
        let mut again = bench.client.accept_session_for_queue(&bench.queue, SESSION, Default::default()).await?;
        assert_eq!(again.session_state().await?, b"kept");
        Ok(())
    }
);

shows!(
    the_lock_of_a_session_is_renewed,
    "ServiceBusSessionReceiver::renew_session_lock ServiceBusSessionReceiver::session_locked_until",
    [sessions],
    |bench| {
        let mut receiver = bench.client.accept_session_for_queue(&bench.queue, SESSION, Default::default()).await?;
        let before = receiver.session_locked_until();
        receiver.renew_session_lock().await?;
        assert!(receiver.session_locked_until() > before);
        Ok(())
    }
);

shows!(
    the_next_session_is_one_with_messages,
    "ServiceBusClient::accept_next_session_for_queue ServiceBusSessionReceiver::session_id",
    [sessions],
    |bench| {
        bench.send(&["1"]).await?;
        let mut receiver = bench.client.accept_next_session_for_queue(&bench.queue, Default::default()).await?;
        assert_eq!(receiver.session_id(), SESSION);
        assert_eq!(receiver.receive_message().await?.body()?, b"1");
        Ok(())
    }
);

shows!(
    a_session_has_one_receiver,
    "ServiceBusClient::accept_session_for_queue",
    [sessions],
    |bench| {
        let _first = bench.client.accept_session_for_queue(&bench.queue, SESSION, Default::default()).await?;
        let second = bench.client.accept_session_for_queue(&bench.queue, SESSION, Default::default()).await;
        assert!(format!("{second:?}").contains("session-cannot-be-locked"));
        Ok(())
    }
);
