-- Tells nodes that a session has changed. In a transaction of its own: whoever notifies holds up all others who do until it is
-- committed, and with nothing to flush that is soon.
CREATE OR REPLACE FUNCTION tell(p_channels text[], p_told text) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
BEGIN
  PERFORM without_flush();
  PERFORM pg_notify(channel, p_told) FROM unnest(p_channels) AS channel;
END
$$;
