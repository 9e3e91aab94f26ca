use crate::bench::*;
use crate::shows;
use azservicebus::administration::{CorrelationRuleFilter, FalseRuleFilter, SqlRuleAction, SqlRuleFilter};
use azservicebus::primitives::service_bus_retry_policy::ServiceBusRetryPolicyExt;
use fe2o3_amqp_types::messaging::ApplicationProperties;
use fe2o3_amqp_types::primitives::SimpleValue;

shows!(
    a_subscription_has_a_copy,
    "ServiceBusClient::create_receiver_for_subscription",
    [plain, partitioned],
    |bench| {
        let mut sender = bench.client.create_sender(&bench.topic, Default::default()).await?;
        sender.send_message(bench.message("copy")).await?;
        let mut receiver =
            bench.client.create_receiver_for_subscription(&bench.topic, SUBSCRIPTION, Default::default()).await?;
        let found = receiver.receive_message().await?;
        assert_eq!(found.body()?, b"copy");
        receiver.complete_message(&found).await?;
        assert!(receiver.peek_message(None).await?.is_none());
        Ok(())
    }
);

shows!(
    a_subscription_has_sessions,
    "ServiceBusClient::accept_session_for_subscription ServiceBusClient::accept_next_session_for_subscription",
    [sessions],
    |bench| {
        let mut sender = bench.client.create_sender(&bench.topic, Default::default()).await?;
        sender.send_messages(bench.messages(&["1", "2"])).await?;
        let mut receiver = bench
            .client
            .accept_session_for_subscription(&bench.topic, SUBSCRIPTION, SESSION, Default::default())
            .await?;
        let found = receiver.receive_message().await?;
        receiver.complete_message(&found).await?;
        receiver.dispose().await?;
        let mut next =
            bench.client.accept_next_session_for_subscription(&bench.topic, SUBSCRIPTION, Default::default()).await?;
        assert_eq!(next.session_id(), SESSION);
        assert_eq!(next.receive_message().await?.body()?, b"2");
        Ok(())
    }
);

shows!(
    rules_choose_and_change_messages,
    "ServiceBusClient::create_rule_manager ServiceBusRuleManager::create_rule ServiceBusRuleManager::delete_rule \
     ServiceBusRuleManager::get_rules",
    [plain, partitioned],
    |bench| {
        let mut rules = bench.client.create_rule_manager(&bench.topic, SUBSCRIPTION).await?;
        for rule in rules.get_rules().await? {
            rules.delete_rule(rule.name).await?;
        }
        let action = SqlRuleAction::new("SET quantity = quantity / 2;");
        rules.create_rule("color", (SqlRuleFilter::new("user.color='red'"), action)).await?;
        rules.create_rule("subject", CorrelationRuleFilter::builder().subject("chosen").build()).await?;
        rules.create_rule("never", FalseRuleFilter::new()).await?;
        let mut names: Vec<String> = rules.get_rules().await?.into_iter().map(|rule| rule.name).collect();
        names.sort();
        assert_eq!(names, ["color", "never", "subject"]);

        let mut sender = bench.client.create_sender(&bench.topic, Default::default()).await?;
        let mut red = bench.message("red");
        *red.application_properties_mut() =
            Some(ApplicationProperties::builder().insert("color", "red").insert("quantity", 10i64).build());
        let mut chosen = bench.message("chosen");
        chosen.set_subject("chosen".to_string());
        sender.send_messages(vec![bench.message("other"), red, chosen]).await?;
        let mut receiver =
            bench.client.create_receiver_for_subscription(&bench.topic, SUBSCRIPTION, Default::default()).await?;
        let mut found = Vec::new();
        while found.len() < 2 {
            found.extend(receiver.receive_messages(2).await?);
        }
        assert_eq!(bodies(&found), ["red", "chosen"]);
        assert_eq!(property(&found[0], "quantity"), Some(SimpleValue::from(5i64)));
        for one in found {
            receiver.complete_message(&one).await?;
        }
        assert!(receiver.peek_message(None).await?.is_none());
        Ok(())
    }
);
