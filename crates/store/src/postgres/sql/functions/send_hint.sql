-- Sends a hint that a session has changed to nodes. Called in a transaction of its own: a
-- transaction that notifies blocks all others that notify until it commits. With nothing to flush,
-- that is soon.
CREATE OR REPLACE FUNCTION tell(p_channels text[], p_told text) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
BEGIN
  PERFORM without_flush();
  PERFORM pg_notify(channel, p_told) FROM unnest(p_channels) AS channel;
END
$$;
