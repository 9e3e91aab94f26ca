package tandembus;

import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.util.Arrays;
import java.util.stream.Stream;
import org.junit.jupiter.api.extension.ExtensionContext;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.ArgumentsProvider;
import org.junit.jupiter.params.provider.ArgumentsSource;
import org.junit.jupiter.params.support.ParameterDeclarations;

/** A test, the public calls that it shows, and the kinds of entities it runs on. tools/sdk_calls.py reads these marks. */
@Retention(RetentionPolicy.RUNTIME)
@ParameterizedTest(name = "{0}")
@ArgumentsSource(Shows.Kinds.class)
@interface Shows {
    String[] calls();

    Kind[] on();

    class Kinds implements ArgumentsProvider {
        @Override
        public Stream<Arguments> provideArguments(ParameterDeclarations parameters, ExtensionContext context) {
            return Arrays.stream(context.getRequiredTestMethod().getAnnotation(Shows.class).on()).map(Arguments::of);
        }
    }
}
