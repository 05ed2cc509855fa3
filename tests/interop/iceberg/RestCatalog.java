import java.net.InetSocketAddress;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.CatalogUtil;
import org.apache.iceberg.jdbc.JdbcCatalog;
import org.apache.iceberg.rest.RESTCatalogAdapter;
import org.apache.iceberg.rest.RESTCatalogServlet;
import org.eclipse.jetty.ee10.servlet.ServletContextHandler;
import org.eclipse.jetty.ee10.servlet.ServletHolder;
import org.eclipse.jetty.server.Server;

/** Iceberg's own REST catalog of its tests, over a database: RestCatalog JDBC_URI WAREHOUSE. */
class RestCatalog {
    /** Serve on a free port of loopback, print its URI, and end when the input ends. */
    public static void main(String[] arguments) throws Exception {
        var backend = CatalogUtil.buildIcebergCatalog(
            "backend",
            Map.of(
                "catalog-impl", JdbcCatalog.class.getName(),
                "uri", arguments[0],
                "warehouse", arguments[1],
                "jdbc.schema-version", "V1"),
            new Configuration());
        var context = new ServletContextHandler();
        var servlet = new RESTCatalogServlet(new RESTCatalogAdapter(backend));
        context.addServlet(new ServletHolder(servlet), "/*");
        var server = new Server(new InetSocketAddress("127.0.0.1", 0));
        server.setHandler(context);
        server.start();
        System.out.println("http://127.0.0.1:" + server.getURI().getPort());
        while (System.in.read() >= 0) {
            continue;
        }
        server.stop();
    }
}
