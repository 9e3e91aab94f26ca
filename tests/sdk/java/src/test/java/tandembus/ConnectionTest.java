package tandembus;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static tandembus.Kind.PARTITIONED;
import static tandembus.Kind.PLAIN;
import static tandembus.Kind.SESSIONS;

import com.azure.core.amqp.AmqpTransportType;
import com.azure.core.credential.AzureNamedKeyCredential;
import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusException;
import com.azure.messaging.servicebus.ServiceBusFailureReason;
import com.azure.messaging.servicebus.ServiceBusSenderClient;

class ConnectionTest extends Case {
    private static final String IN_TLS = CONNECTION_STRING.replace(";UseDevelopmentEmulator=true", "");
    private static final String ADDRESS = "https://localhost:" + PORT;

    private void roundTrip(ServiceBusClientBuilder clients, Kind kind) {
        String queue = queue(kind);
        closing(clients.sender().queueName(queue).buildClient()).sendMessage(message(kind, "through"));
        var receiver = kind == SESSIONS
                ? closing(clients.sessionReceiver().queueName(queue).buildClient()).acceptSession(SESSION)
                : clients.receiver().queueName(queue).buildClient();
        assertEquals("through", receive(closing(receiver)).getBody().toString());
    }

    @Shows(
            calls = {"ServiceBusClientBuilder.customEndpointAddress", "ServiceBusClientBuilder.connectionString"},
            on = {PLAIN, SESSIONS, PARTITIONED})
    void messagesTravelInTls(Kind kind) {
        roundTrip(new ServiceBusClientBuilder().connectionString(IN_TLS).customEndpointAddress(ADDRESS), kind);
    }

    @Shows(
            calls = {"ServiceBusClientBuilder.transportType", "ServiceBusClientBuilder.customEndpointAddress"},
            on = {PLAIN, SESSIONS, PARTITIONED})
    void messagesTravelOverWebSockets(Kind kind) {
        roundTrip(
                new ServiceBusClientBuilder()
                        .connectionString(IN_TLS)
                        .customEndpointAddress(ADDRESS)
                        .transportType(AmqpTransportType.AMQP_WEB_SOCKETS),
                kind);
    }

    @Shows(
            calls = {"ServiceBusClientBuilder.credential", "ServiceBusClientBuilder.fullyQualifiedNamespace"},
            on = {PLAIN})
    void aNameAndAKeyAreEnough(Kind kind) {
        roundTrip(
                new ServiceBusClientBuilder()
                        .fullyQualifiedNamespace("localhost")
                        .customEndpointAddress(ADDRESS)
                        .credential(new AzureNamedKeyCredential(
                                setting("SharedAccessKeyName"), setting("SharedAccessKey"))),
                kind);
    }

    @Shows(
            calls = {"ServiceBusClientBuilder.connectionString"},
            on = {PLAIN})
    void aWrongKeyIsRefused(Kind kind) {
        String wrong = CONNECTION_STRING.replace(setting("SharedAccessKey"), "d3Jvbmc=");
        ServiceBusSenderClient sender = closing(new ServiceBusClientBuilder()
                .connectionString(wrong)
                .retryOptions(patience(0))
                .sender()
                .queueName(queue(kind))
                .buildClient());
        ServiceBusException error =
                assertThrows(ServiceBusException.class, () -> sender.sendMessage(message(kind, "x")));
        assertEquals(ServiceBusFailureReason.UNAUTHORIZED, error.getReason());
    }
}
